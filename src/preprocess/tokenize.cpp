#include "preprocess/tokenize.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <string_view>

#include "core/error.h"
#include "core/plain_text.h"
#include "core/read_json.h"
#include "files/byte_reader.h"
#include "files/mapped_file.h"
#include "files/mapped_lines.h"
#include "text/indexed_writer.h"
#include "text/stream_files.h"
#include "tokenize/document_encoder.h"
#include "tokenize/text_lines.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

// A sequence holds less than 2^31 tokens; a longer document becomes several sequences.
constexpr int64_t kLongestSequence = int64_t{1} << 30;
constexpr int64_t kProgressBytes = int64_t{1} << 20;
constexpr int64_t kReadBytesKept = int64_t{1} << 24;

// One .bin/.idx pair being written.
class Output {
 public:
  Output(const std::string& prefix, const Tokenizer& tokenizer, bool append_eod)
      : writer_(prefix, token_type_for_vocabulary(tokenizer.vocab_size())),
        encoder_(tokenizer),
        eod_(append_eod ? tokenizer.eod() : std::nullopt) {}

  // Adds a piece of the open document.
  void add(std::string_view text) {
    encoder_.add(text, ids_);
    write();
  }

  void end_document() {
    encoder_.finish(ids_);
    write();
    if (!document_has_tokens_) {
      ++empty_documents_;
      return;
    }
    if (eod_) {
      const int32_t eod = *eod_;
      writer_.add({&eod, 1});
    }
    writer_.end_sequence();
    writer_.end_document();
    document_has_tokens_ = false;
  }

  bool document_is_open() const { return document_has_tokens_ || encoder_.holds_text(); }
  int64_t empty_documents() const { return empty_documents_; }
  IndexedWriter& writer() { return writer_; }

 private:
  void write() {
    if (ids_.empty()) return;
    if (writer_.open_tokens() + static_cast<int64_t>(ids_.size()) > kLongestSequence) writer_.end_sequence();
    writer_.add(ids_);
    ids_.clear();
    document_has_tokens_ = true;
  }

  IndexedWriter writer_;
  DocumentEncoder encoder_;
  std::optional<int32_t> eod_;  // appended to every document
  bool document_has_tokens_ = false;
  int64_t empty_documents_ = 0;
  std::vector<int32_t> ids_;
};

bool is_json(const TokenizeOptions& options) {
  if (options.format != TextFormat::Auto) return options.format == TextFormat::JsonLines;
  return is_json_name(options.input);
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// The job: reads the input line by line and writes the outputs.
class TokenizeJob {
 public:
  TokenizeJob(const TokenizeOptions& options, const Tokenizer& tokenizer,
              FunctionRef<void(const TokenizeProgress&)> progress)
      : options_(options),
        tokenizer_(tokenizer),
        input_(options.input),
        takes_bytes_(tokenizer.takes_bytes()),
        progress_(progress) {
    std::error_code ignored;
    if (std::filesystem::is_directory(options.input, ignored))
      bad_input(
          "{} is a folder; name one file of text or JSON lines, "
          "or train on the folder as it is: it is streamed",
          options.input);
    refuse_other_kinds(options.input);
    if (packing_of(options.input) != Packing::None)
      bad_input(
          "{}: compressed files are not read here; decompress it first, "
          "or train on it directly, which streams it",
          options.input);
    if (input_.size() == 0) bad_input("{} is empty, there is nothing to tokenize", options.input);
    if (options.append_eod && !tokenizer.eod())
      bad_input("--append-eod: the tokenizer has no token that ends a document; leave it out");
    const std::vector<std::string> keys =
        is_json(options) ? options.json_keys : std::vector<std::string>{"text"};
    if (keys.empty()) bad_input("--json-keys names no key");
    for (const std::string& key : keys) {
      if (std::count(keys.begin(), keys.end(), key) > 1) bad_input("--json-keys names {} twice", key);
      outputs_.emplace_back(fmt::format("{}_{}_document", options.output_prefix, key), tokenizer,
                            options.append_eod);
    }
  }

  TokenizeResult run() {
    expect_plain_text(input_.text(), options_.input);
    if (is_json(options_)) {
      read_json_lines();
    } else {
      read_text();
    }
    TokenizeResult result;
    for (Output& output : outputs_) {
      if (output.writer().tokens() == 0)
        bad_input("{}: it contains no token for {}", options_.input, output.writer().prefix());
    }
    for (Output& output : outputs_) {
      output.writer().finish();
      result.prefixes.push_back(output.writer().prefix());
      result.empty_documents += output.empty_documents();
    }
    report(input_.size());
    result.input_bytes = input_.size();
    result.documents = documents();
    result.tokens = tokens();
    return result;
  }

 private:
  void read_text() {
    if (!takes_bytes_) expect_utf8_of_file(input_);
    check_text(input_.text(), options_.input);
    Output& output = outputs_.front();
    bool after_blank = false;  // inside the blank lines that end a paragraph
    bool at_line_start = true;
    int64_t done = 0;
    int64_t released = 0;
    for_each_line(input_.text(), kLongestLine, [&](std::string_view line) {
      const bool blank = at_line_start && is_blank(line);
      if (options_.unit == DocumentUnit::Paragraph && after_blank && !blank && output.document_is_open())
        output.end_document();
      after_blank = blank;
      at_line_start = line.back() == '\n';
      output.add(line);
      if (options_.unit == DocumentUnit::Line && at_line_start) output.end_document();
      done += static_cast<int64_t>(line.size());
      if (done - released > kReadBytesKept) {
        input_.release(released, done);
        released = done;
      }
      report_sometimes(done);
    });
    if (output.document_is_open()) output.end_document();
  }

  void read_json_lines() {
    MappedLines lines(input_, "one JSON object a line is expected");
    while (const std::optional<std::string_view> line = lines.next()) {
      if (!is_blank(*line)) add_record(*line, lines.number());
      report_sometimes(lines.bytes_read());
    }
  }

  void add_record(std::string_view line, int64_t number) {
    nlohmann::json record;
    try {
      record = read_record(line, number);
    } catch (const Error& error) {
      if (options_.bad == nullptr || !options_.bad->skips() || error.kind() != ErrorKind::BadInput) throw;
      return options_.bad->add(options_.input, number, error.what());
    }
    for (size_t k = 0; k < outputs_.size(); ++k) {
      outputs_[k].add(record[options_.json_keys[k]].get_ref<const std::string&>());
      outputs_[k].end_document();
    }
  }

  void check_text(std::string_view text, const std::string& place) const {
    try {
      tokenizer_.check_text(text);
    } catch (Error& error) {
      error.add_context(place);
      throw;
    }
  }

  // An object with a text for every key.
  nlohmann::json read_record(std::string_view line, int64_t number) const {
    nlohmann::json object = parse_json_record(line, fmt::format("{}:{}", options_.input, number));
    if (!object.is_object()) bad_input("{}:{} is not a JSON object", options_.input, number);
    for (const std::string& key : options_.json_keys) {
      const auto value = object.find(key);
      if (value == object.end())
        bad_input("{}:{}: the object has no key \"{}\"", options_.input, number, key);
      if (!value->is_string())
        bad_input("{}:{}: the value of \"{}\" is not a string", options_.input, number, key);
      check_text(value->get_ref<const std::string&>(), fmt::format("{}:{}", options_.input, number));
    }
    return object;
  }

  int64_t documents() {
    int64_t sum = 0;
    for (Output& output : outputs_) sum += output.writer().documents();
    return sum;
  }

  int64_t tokens() {
    int64_t sum = 0;
    for (Output& output : outputs_) sum += output.writer().tokens();
    return sum;
  }

  void report(int64_t done) {
    reported_ = done;
    progress_({input_.size(), done, documents(), tokens()});
  }

  void report_sometimes(int64_t done) {
    if (done - reported_ >= kProgressBytes) report(done);
  }

  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  MappedFile input_;
  bool takes_bytes_;
  FunctionRef<void(const TokenizeProgress&)> progress_;
  std::deque<Output> outputs_;  // a writer cannot be moved
  int64_t reported_ = 0;
};

}  // namespace

TokenizeResult tokenize(const TokenizeOptions& options, const Tokenizer& tokenizer,
                        FunctionRef<void(const TokenizeProgress&)> progress) {
  return TokenizeJob(options, tokenizer, progress).run();
}

}  // namespace trifold
