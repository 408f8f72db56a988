#include "preprocess/tokenize.h"
#include "core/bytes_text.h"

#include <fmt/core.h>
#include <unistd.h>

#include "core/error.h"
#include "core/printable.h"
#include "launch/commands.h"
#include "launch/progress.h"
#include "text/stream_files.h"

namespace trifold::launch {

int run(const TokenizeConfig& config) {
  const bool skips = config.data.on_bad_record == OnBadRecord::Skip;
  if ((config.json_keys != TokenizeConfig().json_keys || skips) && !is_json_name(config.input))
    bad_input("--{} has no effect on {}, a plain text file: leave it out, or name a .json or .jsonl file",
              skips ? "on-bad-record skip" : "json-keys", config.input);
  BadRecords bad(config.data.on_bad_record, config.data.max_bad_records);
  const auto tokenizer = make_tokenizer(config.data, config.append_eod);
  TokenizeOptions options;
  options.input = config.input;
  options.output_prefix = config.output_prefix;
  options.json_keys = config.json_keys;
  options.append_eod = config.append_eod;
  options.bad = &bad;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const TokenizeResult result = tokenize(options, *tokenizer, [&](const TokenizeProgress& progress) {
    if (terminal)
      fmt::print(stderr, "\r\033[K{} of {}, {} documents, {} tokens",
                 bytes_text(static_cast<size_t>(progress.bytes_done)),
                 bytes_text(static_cast<size_t>(progress.input_bytes)), progress.documents, progress.tokens);
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  for (const std::string& news : bad.take_news()) fmt::print(stderr, "{}\n", printable_message(news));
  fmt::print(stderr, "{} document{}, {} tokens", result.documents, result.documents == 1 ? "" : "s",
             result.tokens);
  if (result.empty_documents > 0) fmt::print(stderr, "; {} empty documents left out", result.empty_documents);
  fmt::print(stderr, "\n");
  for (const std::string& prefix : result.prefixes) fmt::print("{}\n", prefix);
  return kDone;
}

}  // namespace trifold::launch
