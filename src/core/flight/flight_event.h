// FlightEvent is an entry of the flight recorder (flight_recorder.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trifold {

struct FlightEvent {
  enum class Kind : uint8_t {
    Part,        // a part of the run: "step", "evaluate", "save", "load"
    Action,      // an action of the plan: "0F1"
    Collective,  // "all_reduce": call `number` of communicator `group`, counted from 0
    Send,        // message `number` to `peer` over communicator `group`, counted from 0
    Receive,     // message `number` from `peer`
    Copy,        // a copy between memories, or memory and a file, of `bytes` (recorded_copy.h): "offload"
  };
  static constexpr size_t kNameBytes = 21;  // a longer name is cut
  static constexpr uint16_t kUnknownThread = 0xffff;

  Kind kind = Kind::Part;
  std::array<char, kNameBytes> name_bytes = {};
  int32_t group = -1;  // index of the communicator in FlightLog::groups
  int32_t peer = -1;   // rank of the world
  int64_t number = 0;
  int64_t bytes = 0;  // that this rank sends, counted as in comm/communicator.h, or copies
  // The fields below are set by the recorder.
  // The thread that began it: a number within its process, as far as numbers suffice.
  uint16_t thread = kUnknownThread;
  uint64_t ticket = 0;  // position in the order in which the rank's events began, counted from 0
  int64_t step = 0;     // the run's step, counted from 1; 0: before the first
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // 0: it has not ended

  std::string_view name() const;
  void set_name(std::string_view text);
};

}  // namespace trifold
