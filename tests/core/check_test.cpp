#include "muoncore/core/check.h"

#include <gtest/gtest.h>

namespace muoncore {
namespace {

TEST(Check, NearestName) {
  std::vector<std::string> names{"muon_momentum", "muon_nesterov", "lr", "weight_decay"};
  EXPECT_EQ(nearest_name("muon_momentun", names), "muon_momentum");
  EXPECT_EQ(nearest_name("muonnesterov", names), "muon_nesterov");
  EXPECT_EQ(nearest_name("Lr", names), "lr");
  EXPECT_EQ(nearest_name("banana", names), "");
}

TEST(Check, FailureCarriesItsMessage) {
  EXPECT_NO_THROW(check(true, "fine"));
  try {
    check(false, "{} has {} rows", "w", 3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "w has 3 rows");
  }
}

}  // namespace
}  // namespace muoncore
