#include "monitor/event_folder.h"

#include "core/error.h"

namespace trifold {

std::unique_ptr<RecordSink> open_event_folder(const std::string& folder) {
  bad_input(
      "--tensorboard-dir {}: this program was built without protozero, which encodes event files: install "
      "libprotozero-dev (Debian's name) and build again, or use --log-json",
      folder);
}

}  // namespace trifold
