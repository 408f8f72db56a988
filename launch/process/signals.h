// Handles signals that end the process and signals that ask a run to stop: SIGINT, SIGTERM, SIGUSR1, which batch
// systems send before they end a job, and SIGHUP when the terminal disappears, unless it is ignored (nohup).
#pragma once

#include <atomic>

namespace trifold::launch {

// Makes signals that would end the process remove its scratch folders (files/scratch_folder.h) first. Ignored signals
// stay ignored.
void remove_scratch_on_signals();

// Returns the number of the first signal, 0 until one arrives. From now on the first signal is only recorded there, so
// that the run can stop after its step; the second ends the process at once, as without this call. Also turns a file
// size limit and a closed pipe or terminal into write errors that do not end the process, and lets SIGQUIT print what
// each rank is doing (run/flight/flight_run.h).
const std::atomic<int>& catch_signals();

// For a conversation on a terminal: from now on SIGINT does not end the process, and take_interrupt() says whether one
// arrived since it was last called.
void interrupts_are_taken();
bool take_interrupt();

// Makes reading a mapped file that was shortened, or whose disk failed, end the process with status 1 and a message
// that names the file.
void name_unreadable_files();

}  // namespace trifold::launch
