// RankWatch: says in a file beside the log which ranks of an MPI launcher have ended without a message. Some launchers end
// all ranks as soon as one dies (MPICH's Hydra kills them), before any of them can notice it. So each rank has a small
// process of its own beside it, which outlives the rank for a moment and writes the line that the rank could not write.
//
// The file is LOG.dead: a first line that says what it is, then a line for each rank that died, earliest first. The order
// is that in which the processes were woken; on busy cores without the right to a priority it may be off by milliseconds,
// and between hosts by their clocks. The file does not exist if every rank ended by itself.
#pragma once

#include <optional>
#include <string>

namespace trifold::launch {

class RankWatch {
 public:
  // Starts the process, for the rank of this one; to be called before MPI is started and before there are other threads.
  // Without a launcher, with one rank, or without a log, does nothing.
  explicit RankWatch(const std::optional<std::string>& log);
  // The rank ends by itself.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  int pipe_ = -1;
};

// Writes `why` there as this rank's last words; the launcher will end the other ranks. For use where the process ends at
// once.
void note_last_words(const char* why);

}  // namespace trifold::launch
