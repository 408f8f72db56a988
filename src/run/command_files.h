// check_command_files protects the user's files. It runs for every command before anything is written, on all files
// that the command line names (config/options/file_use.h), and rejects an output
//   - that is an input, by whatever path or link, or lies in a folder that is read (a run may add checkpoints and logs
//     to the folder of --load),
//   - that is another output of the command,
//   - that lies in a checkpoint, a data set or a model, or is a file in which a run notes its checkpoints,
//   - that exists and lacks the mark of the command: OutputMark for files that are written whole, a valid pair for
//     .bin/.idx, lines of Trifold's log for logs. --overwrite lifts this rule alone, and not for logs.
// Empty files, and special files such as pipes, hold nothing that could be lost and are accepted.
#pragma once

#include "config/options/file_use.h"

namespace trifold {

// BadInput, naming option and file.
void check_command_files(const CommandFiles& files);

// Removes the scratch folders that killed commands left next to the outputs (files/scratch_folder.h), also of outputs
// that the command would not write now.
void remove_abandoned_scratch(const CommandFiles& files);

}  // namespace trifold
