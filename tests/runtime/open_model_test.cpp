// The numbers that sizing and loading must agree on: faults.md number 20 was a group size that only loading knew of.
#include "magister/runtime/open_model.h"

#include <gtest/gtest.h>

namespace magister {
namespace open_model_test {

TEST(QuantScheme, AGroupOfTheExperimentIsKnownToBeGiven) {
  ModelSection section;
  section.quantization = "int8";
  EXPECT_FALSE(quant_scheme_of(section).group_given);
  EXPECT_EQ(quant_scheme_of(section).group, 32);
  section.quantization_group = 128;
  EXPECT_TRUE(quant_scheme_of(section).group_given);
  EXPECT_EQ(quant_scheme_of(section).group, 128);
}

}  // namespace open_model_test
}  // namespace magister
