// The colours of a drawn step (plan/step_svg.h): those of Okabe and Ito, which people with any colour vision
// can distinguish; several stages of a rank are shades of one colour.
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
  std::array<int, 3> color;  // red, green and blue up to 255, of the first stage of a rank
  const char* legend;
};

const LookInfo& look_info(Look look);
Look look_of(ActionKind kind);
// Whether it is drawn in the thin band below a row.
bool in_band(Look look);

// The colour of stage `chunk` of `chunks` on a rank: later ones are mixed with more white.
std::array<int, 3> shade(Look look, size_t chunk, size_t chunks);
std::string hex(const std::array<int, 3>& color);
// Whether text on it has to be white.
bool is_dark(const std::array<int, 3>& color);

}  // namespace trifold
