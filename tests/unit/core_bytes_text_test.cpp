#include "core/bytes_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace trifold {
namespace {

TEST(BytesText, TheUnitIsTheLargestOfWhichThereIsOne) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(1048570), "1023.99 KiB");
  EXPECT_EQ(bytes_text(1048571), "1.00 MiB");  // not 1024.00 KiB
  EXPECT_EQ(bytes_text((size_t{1} << 30) - 1), "1.00 GiB");
  EXPECT_EQ(bytes_text(size_t{3} << 19), "1.50 MiB");
  EXPECT_EQ(bytes_text(size_t{5} << 30), "5.00 GiB");
  EXPECT_EQ(bytes_text(size_t{7} << 40), "7.00 TiB");
  EXPECT_EQ(bytes_text(std::numeric_limits<size_t>::max()), "16384.00 PiB");
}

}  // namespace
}  // namespace trifold
