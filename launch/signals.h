// Signals that end the process, and signals that ask a run to stop: SIGINT, SIGTERM, SIGUSR1, which batch systems send
// before they end a job, and SIGHUP when the terminal goes away, unless it is ignored (nohup).
#pragma once

#include <atomic>

namespace trifold::launch {

// From now on a signal that would end the process removes its scratch folders (files/scratch_folder.h) first. Signals
// that are ignored stay so.
void remove_scratch_on_signals();

// The number of the first signal, 0 until one arrives. From now on the first signal is only recorded here, so that the
// run can stop after its step; the second ends the process at once, as without this call. Also turns a file size limit
// and a closed pipe or terminal into write errors that do not end the process.
const std::atomic<int>& catch_signals();

// From now on a mapped file that can no longer be read, because it was shortened or its disk failed, ends the process with
// status 1 and a message that names the file.
void name_unreadable_files();

}  // namespace trifold::launch
