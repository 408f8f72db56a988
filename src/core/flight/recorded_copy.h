// RecordedCopy records a copy between memories of the host, of a device and files, in the flight recorder of the rank
// that runs on the calling thread. It does nothing on threads that run no rank.
#pragma once

#include <cstddef>
#include <exception>
#include <string_view>

#include "core/flight/flight_recorder.h"
#include "core/stream.h"

namespace trifold {

// Scope guard: the copy is what is enqueued on the stream within the scope. On a Worker stream the event lasts from the
// begin of the work to its end; on an Inline stream as long as the scope: if a device's queue copies, the scope must
// wait for it, or the event is that of enqueueing alone.
class RecordedCopy {
 public:
  // A copy by the calling thread.
  RecordedCopy(std::string_view name, size_t bytes) : recorder_(FlightRecorder::here()) {
    if (recorder_ == nullptr) return;
    FlightEvent event;
    event.kind = FlightEvent::Kind::Copy;
    event.set_name(name);
    event.bytes = static_cast<int64_t>(bytes);
    ticket_ = recorder_->begin(event);
  }
  // A copy on `stream`.
  RecordedCopy(std::string_view name, size_t bytes, Stream& stream) : RecordedCopy(name, bytes) {
    if (recorder_ == nullptr || stream.mode() != Stream::Mode::Worker) return;
    stream_ = &stream;
    stream.enqueue([recorder = recorder_, ticket = ticket_] { recorder->restart(ticket); });
  }
  ~RecordedCopy() {
    if (recorder_ == nullptr || std::uncaught_exceptions() != exceptions_) return;
    if (stream_ == nullptr)
      recorder_->end(ticket_);
    else
      stream_->enqueue([recorder = recorder_, ticket = ticket_] { recorder->end(ticket); });
  }
  RecordedCopy(const RecordedCopy&) = delete;
  RecordedCopy& operator=(const RecordedCopy&) = delete;

 private:
  FlightRecorder* recorder_;
  Stream* stream_ = nullptr;  // a Worker stream
  uint64_t ticket_ = 0;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace trifold
