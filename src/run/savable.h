// The interface through which a RunSaver saves the state of any run.
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
  // Writes a checkpoint of this step, or only its weights (SaveOptions::only_weights), under `root` and returns its directory. Collective.
  virtual std::string save(const std::string& root, const SaveOptions& options) = 0;
  // Saves as `save` does while training continues: returns as soon as this rank's part is copied. Collective. See
  // BackgroundSaver::start.
  virtual std::string save_in_background(BackgroundSaver& saver, const std::string& root,
                                         const SaveOptions& options) = 0;
  // Compares the replicated state between ranks (run/checks/replica_check.h); `when` begins the text of the Error. Collective.
  virtual void check_replicas(const std::string& when) = 0;
  // The weights and the optimizer's state that this rank holds, in place, complete as a load fills them. For tests that
  // change one.
  virtual std::vector<NamedTensor> held_tensors() = 0;

 protected:
  Savable() = default;
  Savable(const Savable&) = default;
  Savable& operator=(const Savable&) = default;
};

}  // namespace trifold
