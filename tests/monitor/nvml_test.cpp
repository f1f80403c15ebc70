// NVML's answers in base units, and the faults that they mean. The library is fake_nvml.cpp.
#include "magister/monitor/nvml.h"

#include <gtest/gtest.h>

#include "monitor/fake_gpu.h"

namespace magister {
namespace {

NvmlGpu opened(const Nvml& nvml, const std::string& uuid = "GPU-1") {
  std::string why;
  auto gpu = nvml.open(uuid, why);
  if (!gpu) throw std::runtime_error(why);
  return *gpu;
}

TEST(Nvml, ValuesAreInBaseUnits) {
  const FakeGpu fake("nvml");
  const Nvml nvml;
  ASSERT_EQ(nvml.problem(), "");
  NvmlGpu gpu = opened(nvml);
  std::vector<NvmlGpu::Fault> faults;
  const Readings now = gpu.read(faults, true);
  const std::vector<std::pair<const char*, double>> expected = {{"utilization_ratio", 0.93},
                                                                {"memory_busy_ratio", 0.41},
                                                                {"memory_used_bytes", 64424509440},
                                                                {"memory_total_bytes", 85899345920},
                                                                {"temperature_celsius", 61},
                                                                {"temperature_limit_celsius", 87},
                                                                {"power_watts", 412.5},
                                                                {"power_limit_watts", 700},
                                                                {"energy_joules_total", 5000},
                                                                {"sm_clock_hertz", 1.98e9},
                                                                {"memory_clock_hertz", 2.619e9},
                                                                {"throttled_power_cap", 1},
                                                                {"throttled_thermal", 0},
                                                                {"throttled_hardware", 0},
                                                                {"ecc_uncorrected_errors_total", 0},
                                                                {"xid_errors_total", 0},
                                                                {"processes", 2},
                                                                {"nvlink_transmit_bytes_total", 10240},
                                                                {"nvlink_receive_bytes_total", 20480},
                                                                {"pcie_transmit_bytes_per_second", 1.5e6},
                                                                {"pcie_receive_bytes_per_second", 2.5e6}};
  EXPECT_EQ(now.size(), expected.size());
  EXPECT_EQ(expected.size(), gpu_metrics().size()) << "every metric of a GPU is read here";
  for (const auto& [name, value] : expected) EXPECT_DOUBLE_EQ(reading(now, name).value_or(-1), value) << name;
  EXPECT_TRUE(faults.empty()) << "a GPU that keeps its power limit is healthy";
  EXPECT_FALSE(reading(gpu.read(faults, false), "pcie_receive_bytes_per_second"));
}

TEST(Nvml, TheHostsGpusAreListed) {
  const FakeGpu fake("nvml", "gpus 2\n");
  const std::vector<Nvml::Named> all = Nvml().gpus();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].uuid, "GPU-1");
  EXPECT_EQ(all[1].name, "Fake GPU");
}

TEST(Nvml, LimitsWarnOnce) {
  const FakeGpu fake("nvml");
  const Nvml nvml;
  NvmlGpu gpu = opened(nvml);
  std::vector<NvmlGpu::Fault> faults;
  fake.also("temperature 88\nthrottle 96\n");  // software and hardware slow it down for heat
  for (int i = 0; i < 3; ++i) gpu.read(faults, false);
  ASSERT_EQ(faults.size(), 3U);
  for (const auto& fault : faults) EXPECT_FALSE(fault.fatal);
  EXPECT_NE(faults[0].message.find("GPU GPU-1: 88 degrees Celsius reach its limit of 87"), std::string::npos)
      << faults[0].message;
}

TEST(Nvml, ErrorsOfTheHardwareAreFatal) {
  const FakeGpu fake("nvml", "ecc 3\n");
  const Nvml nvml;
  NvmlGpu gpu = opened(nvml);
  std::vector<NvmlGpu::Fault> faults;
  gpu.read(faults, false);
  EXPECT_TRUE(faults.empty()) << "errors of before the run";
  fake.also("ecc 5\n");
  gpu.read(faults, false);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_TRUE(faults[0].fatal);
  EXPECT_NE(faults[0].message.find("2 new memory errors"), std::string::npos) << faults[0].message;
  fake.also("xid 31\n");  // an invalid address: a program's own fault
  const Readings now = gpu.read(faults, false);
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_FALSE(faults[1].fatal);
  EXPECT_DOUBLE_EQ(*reading(now, "xid_errors_total"), 1);
  fake.also("xid 79\n");
  gpu.read(faults, false);
  ASSERT_EQ(faults.size(), 3U);
  EXPECT_TRUE(faults[2].fatal);
  EXPECT_NE(faults[2].message.find("Xid error 79"), std::string::npos) << faults[2].message;
  fake.also("memory_code 15\n");
  for (int i = 0; i < 2; ++i) gpu.read(faults, false);
  ASSERT_EQ(faults.size(), 4U) << "a lost GPU is reported once";
  EXPECT_TRUE(faults[3].fatal);
}

TEST(Nvml, AnInstanceHasItsMemoryAndTheWholeGpusPower) {
  const FakeGpu fake("nvml", "only_mig 1\n");
  const Nvml nvml;
  NvmlGpu gpu = opened(nvml, "GPU-17");  // as the CUDA runtime writes it
  EXPECT_TRUE(gpu.is_instance());
  EXPECT_EQ(gpu.whole_uuid(), "GPU-whole");
  std::vector<NvmlGpu::Fault> faults;
  const Readings now = gpu.read(faults, false);
  EXPECT_FALSE(reading(now, "utilization_ratio")) << "NVML does not measure it for instances";
  EXPECT_DOUBLE_EQ(reading(now, "power_watts").value_or(0), 412.5);
  EXPECT_DOUBLE_EQ(reading(now, "memory_used_bytes").value_or(0), 64424509440);
}

TEST(Nvml, ProblemsHaveOurOwnText) {
  const FakeGpu fake("nvml", "init 9\n");
  const Nvml nvml;
  EXPECT_EQ(nvml.problem(), "NVML does not start: the NVIDIA driver is not loaded");
  std::string why;
  EXPECT_FALSE(nvml.open("GPU-1", why));
  EXPECT_EQ(why, nvml.problem());
  EXPECT_EQ(nvml_error(999), "error 999 of NVML");
}

TEST(Nvml, WhatAGpuDoesNotSupportIsAbsent) {
  const FakeGpu fake("nvml");
  fake.set("memory_total 100\nmemory_used 10\n");
  const Nvml nvml;
  NvmlGpu gpu = opened(nvml);
  std::vector<NvmlGpu::Fault> faults;
  const Readings now = gpu.read(faults, true);
  EXPECT_EQ(now.size(), 3U);  // memory in use and of all, and the Xid errors that were counted
  EXPECT_TRUE(faults.empty());
}

}  // namespace
}  // namespace magister
