#include "data/tokenize.h"

#include <fmt/core.h>
#include <unistd.h>

#include "launch/commands.h"
#include "launch/progress.h"

namespace trifold::launch {

int run(const TokenizeConfig& config) {
  const auto tokenizer = make_tokenizer(config.tokenizer_type, config.tokenizer_model);
  TokenizeOptions options;
  options.input = config.input;
  options.output_prefix = config.output_prefix;
  options.json_keys = config.json_keys;
  options.append_eod = config.append_eod;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const TokenizeResult result = tokenize(options, *tokenizer, [&](const TokenizeProgress& progress) {
    if (terminal)
      fmt::print(stderr, "\r\033[K{} of {}, {} documents, {} tokens",
                 bytes_text(static_cast<size_t>(progress.bytes_done)),
                 bytes_text(static_cast<size_t>(progress.input_bytes)), progress.documents, progress.tokens);
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  fmt::print(stderr, "{} documents, {} tokens", result.documents, result.tokens);
  if (result.empty_documents > 0) fmt::print(stderr, "; {} empty documents left out", result.empty_documents);
  fmt::print(stderr, "\n");
  for (const std::string& prefix : result.prefixes) fmt::print("{}\n", prefix);
  return kDone;
}

}  // namespace trifold::launch
