// Reads the configuration files of other programs, DeepSpeed's JSON and accelerate's FSDP YAML, as options of
// `trifold pretrain`. What each key means here is data (config/foreign/config_files.inc).
#pragma once

#include <string>
#include <vector>

#include "config/foreign/translate.h"

namespace trifold {

struct ImportedConfig {
  std::string program;               // "DeepSpeed"
  std::vector<GivenOption> options;  // in the order of the keys; each once
  // A line for each key that becomes no option, and why: "steps_per_print 10: ...".
  std::vector<std::string> remarks;
};

// BadInput, naming the file, if it cannot be read, is neither JSON nor YAML, or has no key of these programs, and for a
// value that its option rejects. The program whose keys are the most is taken.
ImportedConfig import_config(const std::string& file);

// The options as words of a command line, quoted for a shell.
std::string as_words(const ImportedConfig& config);
// The options as a file for --config, with the remarks as comments.
std::string as_config_file(const ImportedConfig& config, const std::string& file);

}  // namespace trifold
