// The message with which an input is rejected.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace trifold::test {

// The message of the BadInput that `body` throws.
template <class Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

}  // namespace trifold::test
