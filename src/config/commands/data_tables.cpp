// The options of the commands that write data for training: tokenize, preprocess.
#include "config/commands/option_tables.h"
#include "config/subjects/recommenders/clicks.h"
#include "config/subjects/text.h"

namespace trifold {

OptionTable options_of(TokenizeConfig& config) {
  OptionTable table;
  table.group("Files");
  table.add("input", &config.input, "Text file, or JSON lines if its name ends in .json or .jsonl.")
      .need()
      .reads("FILE");
  table
      .add("output-prefix", &config.output_prefix,
           "Write PREFIX_KEY_document.bin and .idx; for a plain text file, KEY is text.")
      .need()
      .names("PREFIX", FileUse::TokenPairs);
  table.add("json-keys", &config.json_keys, "Fields of each JSON line that hold text.")
      .need()
      .takes("KEY ...");
  add_bad_records(table, &config.data.on_bad_record, &config.data.max_bad_records);
  table.group("Tokenizer");
  add_tokenizer(table, config.data);
  table.change("tokenizer-type").absent("byte");
  add_special_tokens_in_text(table, config.data);
  table.add("append-eod", &config.append_eod, "End every document with an end-of-document token.");
  return table;
}

OptionTable options_of(PreprocessConfig& config) {
  OptionTable table;
  add_clicks(table, config);
  return table;
}

}  // namespace trifold
