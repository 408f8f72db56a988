#include "tokenize/hugging_face_tokenizer.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/plain_text.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/mapped_file.h"
#include "tokenize/end_token.h"
#include "tokenize/unicode/unicode.h"
#include "tokenize/vocabulary_files.h"

namespace trifold {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;
// Limits that allow the largest known files, with 260 000 tokens and 580 000 merges.
constexpr JsonLimits kTokenizerLimits{int64_t{64} << 20, 64, 3'000'000};

const nlohmann::json& part_of(const nlohmann::json& json, const char* name) {
  static const nlohmann::json kNothing;
  const auto found = json.find(name);
  return found == json.end() ? kNothing : *found;
}

// The type of the model, which old files omit.
std::string type_of(const nlohmann::json& model) {
  if (model.contains("type")) return JsonView(model, "model").at("type").text();
  return model.contains("merges") ? "BPE" : model.contains("max_input_chars_per_word") ? "WordPiece" : "?";
}

std::variant<BytePairs, WordPieces> read_model(const nlohmann::json& json,
                                               const PreTokenizer& pre_tokenizer) {
  const nlohmann::json& model = json.at("model");
  const std::string type = type_of(model);
  if (type == "WordPiece" && !pre_tokenizer.is_byte_level()) return WordPieces(model);
  if (type == "BPE" && pre_tokenizer.is_byte_level()) return BytePairs(model);
  bad_input(
      "its model is {}{}, which is not supported; byte-level BPE (GPT-2, Llama 3) and WordPiece (BERT) are",
      printable(type),
      type == "BPE"         ? " without the pre_tokenizer ByteLevel"
      : type == "WordPiece" ? " with the pre_tokenizer ByteLevel"
                            : "");
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Removes spaces before punctuation and English contractions.
void tidy(std::string& text) {
  static const std::array<std::array<std::string_view, 2>, 11> kPairs{{{" .", "."},
                                                                       {" ?", "?"},
                                                                       {" !", "!"},
                                                                       {" ,", ","},
                                                                       {" ' ", "'"},
                                                                       {" n't", "n't"},
                                                                       {" 'm", "'m"},
                                                                       {" do not", " don't"},
                                                                       {" 's", "'s"},
                                                                       {" 've", "'ve"},
                                                                       {" 're", "'re"}}};
  for (const auto& [from, to] : kPairs) replace_all(text, from, to);
}

}  // namespace

struct HuggingFaceTokenizer::Model {
  explicit Model(const std::string& path) : file(path) {
    const MappedFile mapped(file);
    const std::string_view content = mapped.text();
    expect_plain_text(content, file);
    json = parse_json(content, file, kTokenizerLimits);
    if (!json.is_object() || !json.contains("model") || !json["model"].is_object())
      bad_input("{} is not a tokenizer.json of Hugging Face: a JSON object with a \"model\" is expected",
                file);
    fingerprint = model_fingerprint("huggingface", content);
  }
  explicit Model(const TokenizerParts& parts)
      : file(parts.file), json(parts.json), fingerprint(parts.fingerprint) {}

  std::string file;
  nlohmann::json json;
  std::string fingerprint;
};

HuggingFaceTokenizer::HuggingFaceTokenizer(const std::string& file,
                                           const std::optional<std::string>& end_token) try
    : HuggingFaceTokenizer(Model(file), end_token) {
} catch (Error& error) {
  if (!std::string_view(error.what()).starts_with(file)) error.add_context(file);
  throw;
}

HuggingFaceTokenizer::HuggingFaceTokenizer(const TokenizerParts& parts,
                                           const std::optional<std::string>& end_token) try
    : HuggingFaceTokenizer(Model(parts), end_token) {
} catch (Error& error) {
  if (!std::string_view(error.what()).starts_with(parts.file)) error.add_context(parts.file);
  throw;
}

HuggingFaceTokenizer::HuggingFaceTokenizer(const Model& model, const std::optional<std::string>& end_token)
    : fingerprint_(model.fingerprint),
      normalizer_(part_of(model.json, "normalizer")),
      pre_tokenizer_(part_of(model.json, "pre_tokenizer")),
      model_(read_model(model.json, pre_tokenizer_)),
      added_(part_of(model.json, "added_tokens"), vocabulary(), normalizer_) {
  name_tokens();
  read_decoder(part_of(model.json, "decoder"));
  find_end(model.file, end_token);
}

std::optional<int32_t> HuggingFaceTokenizer::id_of(const std::string& token) const {
  for (const auto* list : {&added_.ids(), &vocabulary()})
    if (const auto found = list->find(token); found != list->end()) return found->second;
  return std::nullopt;
}

// Finds the token that ends documents. The fingerprint includes it if it is not the default.
void HuggingFaceTokenizer::find_end(const std::string& file, const std::optional<std::string>& end_token) {
  static constexpr const char* kUsual[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                           "<eos>",         "<|eos|>",         "<｜end▁of▁sentence｜>",
                                           "[EOS]",         "<|im_end|>",      "[SEP]"};
  std::optional<int32_t> usual;
  for (const char* name : kUsual)
    if (const auto found = added_.ids().find(name); !usual && found != added_.ids().end())
      usual = found->second;
  const auto ids = [this](const std::string& token) { return id_of(token); };
  eod_ = find_end_token(file, end_token, {ids, vocab_size()});
  if (!eod_) eod_ = usual;
  if (eod_ != usual) fingerprint_ += fmt::format(", {} ends a document", *eod_);
}

const std::unordered_map<std::string, int32_t>& HuggingFaceTokenizer::vocabulary() const {
  return std::visit(
      [](const auto& model) -> const auto& { return model.vocabulary(); }, model_);
}

void HuggingFaceTokenizer::name_tokens() {
  for (const auto* list : {&vocabulary(), &added_.ids()}) {
    for (const auto& entry : *list) {
      if (entry.second < 0 || entry.second >= kMostTokens)
        bad_input("the id {} of its token \"{}\" is not possible", entry.second, printable(entry.first));
      const auto id = static_cast<size_t>(entry.second);
      if (id >= tokens_.size()) tokens_.resize(id + 1);
      tokens_[id] = entry.first;
    }
  }
  for (const auto& [id, text] : added_.texts()) tokens_[static_cast<size_t>(id)] = text;
}

// Byte-level models are decoded by bytes, regardless of the file; word pieces are joined as in BERT.
void HuggingFaceTokenizer::read_decoder(const nlohmann::json& decoder) {
  if (!decoder.is_object()) return;
  const JsonView view(decoder, "decoder");
  if (view.text("type", "") != "WordPiece") return;
  piece_prefix_ = view.text("prefix", "##");
  clean_up_ = view.flag("cleanup", true);
}

void HuggingFaceTokenizer::encode_words(std::string_view text, bool goes_on,
                                        std::vector<int32_t>& ids) const {
  const Words words = pre_tokenizer_.cut(text, goes_on);
  std::visit(
      [&](const auto& model) {
        for (const std::string_view word : words.views) model.encode(word, ids);
      },
      model_);
}

void HuggingFaceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  PieceState state;
  encode_piece(text, state, ids);
}

void HuggingFaceTokenizer::encode_piece(std::string_view text, PieceState& state,
                                        std::vector<int32_t>& ids) const {
  if (const auto at = invalid_utf8(text)) bad_input("byte {} of a text to be tokenized is not UTF-8", *at);
  for (const TextPart& raw : added_.find_raw(text)) {
    if (raw.id) {
      ids.push_back(*raw.id);
      state.inside = false;
      continue;
    }
    const std::string changed = normalizer_.changes_nothing() ? std::string() : normalizer_(raw.text);
    for (const TextPart& part : added_.find_normalized(normalizer_.changes_nothing() ? raw.text : changed)) {
      if (part.id) {
        ids.push_back(*part.id);
      } else {
        encode_words(part.text, state.inside, ids);
      }
      state.inside = !part.id;
    }
  }
}

std::string HuggingFaceTokenizer::join_pieces(std::span<const int32_t> ids) const {
  std::string text;
  bool first = true;
  for (int32_t id : ids) {
    if (added_.is_special(id)) continue;
    std::string piece = tokens_[static_cast<size_t>(id)];
    if (!first) {
      if (piece.starts_with(piece_prefix_))
        piece.erase(0, piece_prefix_.size());
      else
        piece.insert(0, " ");
    }
    first = false;
    if (clean_up_) tidy(piece);
    text += piece;
  }
  return text;
}

std::string HuggingFaceTokenizer::decode(std::span<const int32_t> ids) const {
  check_ids(ids, vocab_size());
  if (std::holds_alternative<WordPieces>(model_)) return join_pieces(ids);
  std::string bytes;
  for (int32_t id : ids)
    if (!added_.is_special(id)) bytes += bytes_of_token(tokens_[static_cast<size_t>(id)]);
  return replace_invalid_utf8(bytes);
}

}  // namespace trifold
