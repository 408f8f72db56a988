// RankWatch records in a file next to the log which ranks of an MPI launcher have ended without a message. Some
// launchers end all ranks as soon as one dies (MPICH's Hydra kills them), before any of them can notice it. Each rank
// therefore has a small watching process, which outlives the rank for a moment and writes the line that the rank could
// not write.
//
// The file is LOG.dead: a first line that explains it, then a line for each rank that died, earliest first. The order
// is that in which the processes were woken; on busy cores without permission for a priority it may be wrong by
// milliseconds, and between hosts by their clocks. The file does not exist if every rank ended regularly.
#pragma once

#include <optional>
#include <string>

namespace trifold::launch {

class RankWatch {
 public:
  // Starts the watching process for this process's rank; call it before MPI is started and before there are other
  // threads. Does nothing without a launcher, with one rank, or without a log.
  explicit RankWatch(const std::optional<std::string>& log);
  // Declares that the rank ends regularly.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  int pipe_ = -1;
};

// Writes `why` to the file as this rank's last words; the launcher will end the other ranks. For use when the process
// ends at once.
void note_last_words(const char* why);

}  // namespace trifold::launch
