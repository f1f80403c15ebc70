// MpiHints owns the MPI_Info and frees it unless MPI is finalized.
#include "magister/parallel/mpi_hints.h"

#include "parallel/check.h"

namespace magister {

struct MpiHints::Info {
  MPI_Info info = MPI_INFO_NULL;
};

MpiHints::MpiHints(const std::vector<std::pair<std::string, std::string>>& hints) : info_(std::make_unique<Info>()) {
  if (hints.empty()) return;
  MAGISTER_CHECK_MPI(MPI_Info_create(&info_->info));
  for (const auto& [name, value] : hints) MAGISTER_CHECK_MPI(MPI_Info_set(info_->info, name.c_str(), value.c_str()));
}

MpiHints::~MpiHints() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && info_->info != MPI_INFO_NULL) MPI_Info_free(&info_->info);
}

const void* MpiHints::info() const { return static_cast<const void*>(&info_->info); }

const void* MpiHints::this_process() {
  static const MPI_Comm self = MPI_COMM_SELF;
  return static_cast<const void*>(&self);
}

std::size_t MpiHints::max_name_bytes() { return MPI_MAX_INFO_KEY - 1; }
std::size_t MpiHints::max_value_bytes() { return MPI_MAX_INFO_VAL - 1; }

}  // namespace magister
