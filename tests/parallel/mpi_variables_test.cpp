// The variables that make MPI's start shorter: set while MPI starts, and only for a process without a launcher.
#include "parallel/mpi_variables.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace magister {
namespace mpi_variables_test {

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t end = text.find('=');
    all.emplace(text.substr(0, end), end == std::string_view::npos ? "" : text.substr(end + 1));
  }
  return all;
}

// An environment without launchers and without variables of Open MPI; the process's own comes back afterwards.
class MpiVariablesTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [name, value] : own_) {
      for (const char* beginning : {"PMI", "OMPI_", "SLURM", "MV2_", "MPI_", "PALS_", "ALPS_", "FLUX_", "HYDRA_"})
        if (name.starts_with(beginning)) unsetenv(name.c_str());
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : environment()) unsetenv(name.c_str());
    for (const auto& [name, value] : own_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  const std::map<std::string, std::string> own_ = environment();
};

const char* const kNames[] = {"OMPI_MCA_ess_singleton_isolated", "OMPI_MCA_orte_create_session_dirs",
                              "OMPI_MCA_sharedfp"};

TEST_F(MpiVariablesTest, AProcessAloneStartsNoDaemon) {
  const auto before = environment();
  {
    const MpiVariables variables;
    const auto during = environment();
    EXPECT_EQ(during.at(kNames[0]), "1");
    EXPECT_EQ(during.at(kNames[1]), "0");
    EXPECT_EQ(during.at(kNames[2]), "^sm");
    // Nothing else changes, but for the libraries of networks that this host may not have.
    for (const auto& [name, value] : during) {
      EXPECT_TRUE(name.starts_with("OMPI_MCA_") || before.at(name) == value) << name;
    }
    EXPECT_LE(during.size(), before.size() + 4);
  }
  EXPECT_EQ(environment(), before);
}

TEST_F(MpiVariablesTest, WhatTheUserHasSetStays) {
  setenv("OMPI_MCA_sharedfp", "individual", 1);
  setenv("OMPI_MCA_mtl", "ofi", 1);
  const auto before = environment();
  {
    const MpiVariables variables;
    EXPECT_STREQ(std::getenv("OMPI_MCA_sharedfp"), "individual");
    EXPECT_STREQ(std::getenv("OMPI_MCA_mtl"), "ofi");
    EXPECT_STREQ(std::getenv(kNames[0]), "1");
  }
  EXPECT_EQ(environment(), before);
}

TEST_F(MpiVariablesTest, ALaunchedProcessKeepsItsDaemon) {
  for (const char* launcher :
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI2_RANK", "PMIX_NAMESPACE", "SLURM_STEP_ID",
        "MV2_COMM_WORLD_RANK", "MPI_LOCALRANKID", "PALS_RANKID", "ALPS_APP_PE", "FLUX_TASK_RANK", "HYDRA_CONTROL_FD"}) {
    setenv(launcher, "0", 1);
    {
      const MpiVariables variables;
      for (const char* name : kNames) EXPECT_EQ(std::getenv(name), nullptr) << launcher;
    }
    unsetenv(launcher);
  }
  // A job's own variables do not say that this process was launched: a batch script starts it, too.
  setenv("SLURM_JOB_ID", "7", 1);
  const MpiVariables variables;
  EXPECT_STREQ(std::getenv(kNames[0]), "1");
}

}  // namespace mpi_variables_test
}  // namespace magister
