#include "schedule/action_colors.h"

#include <fmt/format.h>

#include <cmath>

namespace trifold {

namespace {

constexpr std::array<LookInfo, 13> kLooks{{{"F", {0x3d, 0x8f, 0xd1}, "F forward"},
                                           {"B", {0xe6, 0x9f, 0x00}, "B backward"},
                                           {"I", {0xd5, 0x5e, 0x00}, "I input gradient"},
                                           {"W", {0x00, 0x9e, 0x73}, "W weight gradient"},
                                           {"S", {0x6b, 0x6b, 0x6b}, "send"},
                                           {"R", {0xb0, 0xb0, 0xb0}, "receive"},
                                           {"G", {0xcc, 0x79, 0xa7}, "gradient reduction"},
                                           {"U", {0x20, 0x20, 0x20}, "weight update"},
                                           {"L", {0x56, 0xb4, 0xe9}, "lookup"},
                                           {"V", {0xcc, 0x79, 0xa7}, "vectors and their gradients"},
                                           {"N", {0x8c, 0x8c, 0x8c}, "next batch"},
                                           {"O", {0x8a, 0x6d, 0x3b}, "off-load"},
                                           {"E", {0xd9, 0xb3, 0x65}, "fetch"}}};

}  // namespace

const LookInfo& look_info(Look look) { return kLooks[static_cast<size_t>(look)]; }

Look look_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::F:
      return Look::F;
    case ActionKind::B:
      return Look::B;
    case ActionKind::I:
      return Look::I;
    case ActionKind::W:
      return Look::W;
    case ActionKind::SendF:
    case ActionKind::SendB:
      return Look::Send;
    case ActionKind::RecvF:
    case ActionKind::RecvB:
      return Look::Receive;
    case ActionKind::Step:
    case ActionKind::UpdateRows:
      return Look::Step;
    case ActionKind::Lookup:
      return Look::Lookup;
    case ActionKind::Collect:
    case ActionKind::Return:
      return Look::Travel;
    case ActionKind::Read:
      return Look::Read;
    case ActionKind::Offload:
      return Look::Offload;
    case ActionKind::Fetch:
      return Look::Fetch;
    default:
      return Look::Reduce;
  }
}

bool in_band(Look look) {
  return look == Look::Send || look == Look::Receive || look == Look::Reduce || look == Look::Offload ||
         look == Look::Fetch;
}

std::array<int, 3> shade(Look look, size_t chunk, size_t chunks) {
  std::array<int, 3> color = look_info(look).color;
  const double white = chunks < 2 ? 0 : 0.55 * static_cast<double>(chunk) / static_cast<double>(chunks - 1);
  for (int& part : color) part += static_cast<int>(std::lround((255 - part) * white));
  return color;
}

std::string hex(const std::array<int, 3>& color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color[0], color[1], color[2]);
}

bool is_dark(const std::array<int, 3>& color) {
  return 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] < 128;
}

}  // namespace trifold
