// trifold import-config: options from a configuration of DeepSpeed or accelerate.
#include "convert/import_config.h"

#include <fmt/format.h>

#include "launch/commands.h"

namespace trifold::launch {

int run(const ImportConfig& config) {
  const ImportedConfig imported = import_config(config.file);
  if (config.format == ImportFormat::Config) {
    fmt::print("{}", as_config_file(imported, config.file));
    return kDone;
  }
  for (const std::string& remark : imported.remarks) fmt::print(stderr, "{}\n", remark);
  fmt::print("{}\n", as_words(imported));
  return kDone;
}

}  // namespace trifold::launch
