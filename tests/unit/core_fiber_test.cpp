#include "core/fiber.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace trifold {
namespace {

// Appends to a text when it dies.
struct Leaves {
  std::string& text;
  const char* what;
  ~Leaves() { text += what; }
};

TEST(Fiber, TakesTurnsWithItsCallerInTheMiddleOfCalls) {
  Fiber fiber;
  for (int time = 0; time < 2; ++time) {  // with a new body each time
    std::string text;
    Fiber::Turns* turns = nullptr;
    const auto inner = [&] {
      text += "b";
      turns->switch_over();
      text += "d";
    };
    const auto body = [&] {
      const Leaves end{text, "e"};
      inner();
      turns->switch_over();
      text += "g";
    };
    Fiber::Turns both(fiber, body);
    turns = &both;
    text += "a";
    both.switch_over();
    text += "c";
    both.switch_over();
    text += "f";
    EXPECT_FALSE(both.ended());
    both.switch_over();
    EXPECT_TRUE(both.ended());
    both.switch_over();  // no effect
    EXPECT_EQ(text, "abcdfge");
  }
}

TEST(Fiber, AnExceptionOfItsBodyReachesTheCallerOnce) {
  Fiber fiber;
  Fiber::Turns* turns = nullptr;
  const auto body = [&] {
    turns->switch_over();
    try {
      fail("first");
    } catch (const Error&) {  // one that it handles itself stays inside
    }
    fail("second");
  };
  Fiber::Turns both(fiber, body);
  turns = &both;
  both.switch_over();
  try {
    both.switch_over();
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "second");
  }
  EXPECT_TRUE(both.ended());
  both.switch_over();
}

TEST(Fiber, ABodyThatIsLeftIsUnwound) {
  Fiber fiber;
  std::string text;
  const auto leave = [&](int turns_before) {
    Fiber::Turns* turns = nullptr;
    const auto body = [&] {
      const Leaves end{text, "x"};
      turns->switch_over();
      text += "never";
    };
    Fiber::Turns both(fiber, body);
    turns = &both;
    for (int i = 0; i < turns_before; ++i) both.switch_over();
    if (turns_before > 0) fail("the caller");
  };
  leave(0);  // not begun: nothing to unwind
  EXPECT_EQ(text, "");
  EXPECT_THROW(leave(1), Error);
  EXPECT_EQ(text, "x");
}

}  // namespace
}  // namespace trifold
