// The colours of a drawn step (plan/pictures/step_svg.h): the palette of Okabe and Ito, which people with any colour vision can
// distinguish. Several stages of a rank are shades of one colour.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "schedule/action.h"

namespace trifold {

// The parts of a step that have different colours in a picture.
enum class Look : uint8_t { F, B, I, W, Send, Receive, Reduce, Step, Lookup, Travel, Read, Offload, Fetch };

struct LookInfo {
  const char* name;
  std::array<int, 3> color;  // red, green and blue up to 255, for the first stage of a rank
  const char* legend;
};

const LookInfo& look_info(Look look);
Look look_of(ActionKind kind);
// Whether actions of this look are drawn in the thin band below a row.
bool in_band(Look look);

// The colour of stage `chunk` of `chunks` on a rank: white is mixed into later stages.
std::array<int, 3> shade(Look look, size_t chunk, size_t chunks);
std::string hex(const std::array<int, 3>& color);
// Whether text on this colour must be white.
bool is_dark(const std::array<int, 3>& color);

}  // namespace trifold
