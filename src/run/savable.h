// What a RunSaver needs of a run, whatever is trained: the state to save.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/background_saver.h"
#include "checkpoint/writer.h"

namespace trifold {

class Savable {
 public:
  virtual ~Savable() = default;
  virtual int64_t steps_done() const = 0;
  // Writes a checkpoint of this step under `root` and returns its directory. Collective.
  virtual std::string save(const std::string& root, const SaveOptions& options) = 0;
  // The same while training goes on: returns as soon as this rank's part is copied. Collective. What
  // BackgroundSaver::start says.
  virtual std::string save_in_background(BackgroundSaver& saver, const std::string& root,
                                         const SaveOptions& options) = 0;
  // Compares what several ranks hold alike of the state, as run/replica_check.h says; `when` begins the
  // text of the Error. Collective.
  virtual void check_replicas(const std::string& when) = 0;
  // The weights and the optimizer's states that this rank holds, complete and where they live: what load fills.
  // For tests that change one.
  virtual std::vector<NamedTensor> held_tensors() = 0;

 protected:
  Savable() = default;
  Savable(const Savable&) = default;
  Savable& operator=(const Savable&) = default;
};

}  // namespace trifold
