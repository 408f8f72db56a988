#include "tokenize/hugging_face_tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/plain_text.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/mapped_file.h"
#include "tokenize/end_token.h"
#include "tokenize/trial_cuts.h"
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

std::variant<BytePairs, WordPieces, Unigram> read_model(const nlohmann::json& json, MergeOrder merges,
                                                        bool byte_level) {
  const nlohmann::json& model = json.at("model");
  const std::string type = type_of(model);
  if (type == "WordPiece" && !byte_level) return WordPieces(model);
  if (type == "Unigram" && !byte_level) return Unigram(model);
  if (type == "BPE")
    return BytePairs(model, byte_level ? PairSymbols::Bytes : PairSymbols::Characters, merges);
  bad_input("its model is {}{}, which is not supported; BPE, WordPiece (BERT) and Unigram (XLM-R) are",
            printable(type),
            type == "WordPiece" || type == "Unigram" ? " with the pre_tokenizer ByteLevel" : "");
}

// The decoder. Byte-level models are decoded by bytes, regardless of the file; word pieces are joined as in BERT.
nlohmann::json decoder_of(const nlohmann::json& json, bool byte_level) {
  if (byte_level) return {{"type", "ByteLevel"}};
  const nlohmann::json& named = part_of(json, "decoder");
  if (named.is_null() && type_of(json.at("model")) == "WordPiece") return {{"type", "WordPiece"}};
  return named;
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
      : file(parts.file),
        json(parts.json),
        fingerprint(parts.fingerprint),
        merges(parts.merges),
        dialect(parts.dialect) {}

  std::string file;
  nlohmann::json json;
  std::string fingerprint;
  MergeOrder merges = MergeOrder::Listed;
  PatternDialect dialect = PatternDialect::Ruby;
};

HuggingFaceTokenizer::HuggingFaceTokenizer(const std::string& file,
                                           const std::optional<std::string>& end_token,
                                           SpecialTokensInText special) try
    : HuggingFaceTokenizer(Model(file), end_token, special) {
} catch (Error& error) {
  if (!std::string_view(error.what()).starts_with(file)) error.add_context(file);
  throw;
}

HuggingFaceTokenizer::HuggingFaceTokenizer(const TokenizerParts& parts,
                                           const std::optional<std::string>& end_token,
                                           SpecialTokensInText special) try
    : HuggingFaceTokenizer(Model(parts), end_token, special) {
} catch (Error& error) {
  if (!std::string_view(error.what()).starts_with(parts.file)) error.add_context(parts.file);
  throw;
}

HuggingFaceTokenizer::HuggingFaceTokenizer(const Model& model, const std::optional<std::string>& end_token,
                                           SpecialTokensInText special)
    : fingerprint_(model.fingerprint),
      normalizer_(part_of(model.json, "normalizer")),
      pre_tokenizer_(part_of(model.json, "pre_tokenizer"), model.dialect),
      model_(read_model(model.json, model.merges, pre_tokenizer_.is_byte_level())),
      added_(part_of(model.json, "added_tokens"), vocabulary(), normalizer_, special),
      refuses_(special == SpecialTokensInText::Refuse),
      decoder_(decoder_of(model.json, pre_tokenizer_.is_byte_level())) {
  name_tokens();
  find_end(model.file, end_token);
  if (special != SpecialTokensInText::Encode)
    fingerprint_ += fmt::format(", special tokens in text: {}", name_of(special));
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
      if (!tokens_[id].empty() && tokens_[id] != entry.first)
        bad_input("it has two tokens of the id {}: \"{}\" and \"{}\"", id, printable(tokens_[id]),
                  printable(entry.first));
      tokens_[id] = entry.first;
    }
  }
  for (const auto& [id, text] : added_.texts()) tokens_[static_cast<size_t>(id)] = text;
}

void HuggingFaceTokenizer::encode_words(std::string_view text, TextPlace place,
                                        std::vector<int32_t>& ids) const {
  const Words words = pre_tokenizer_.cut(text, place);
  std::visit(
      [&](const auto& model) {
        for (const std::string_view word : words.views) model.encode(word, ids);
      },
      model_);
}

bool HuggingFaceTokenizer::cuts_by_trial() const {
  const auto* pairs = std::get_if<BytePairs>(&model_);
  return normalizer_.depends_on_cuts() || std::holds_alternative<Unigram>(model_) ||
         (pairs != nullptr && !pre_tokenizer_.is_byte_level());
}

std::vector<int32_t> HuggingFaceTokenizer::ids_of(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

size_t HuggingFaceTokenizer::find_cut(std::string_view text, size_t from) const {
  if (!cuts_by_trial()) return find_line_cut(text, from, pre_tokenizer_.line_cut());
  const auto ids = [this](std::string_view part) { return ids_of(part); };
  return TrialCuts(ids).find_cut(text, from);
}

void HuggingFaceTokenizer::check_text(std::string_view text) const {
  if (refuses_) added_.find_raw(text);
}

void HuggingFaceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  PieceState state;
  encode_part(text, state, ids);
}

void HuggingFaceTokenizer::encode_piece(std::string_view text, PieceState& state,
                                        std::vector<int32_t>& ids) const {
  if (!cuts_by_trial()) return encode_part(text, state, ids);
  const auto ids_of_part = [this](std::string_view part) { return ids_of(part); };
  TrialCuts(ids_of_part).encode_piece(text, state, ids);
}

void HuggingFaceTokenizer::encode_part(std::string_view text, PieceState& state,
                                       std::vector<int32_t>& ids) const {
  if (const auto at = invalid_utf8(text)) bad_input("byte {} of a text to be tokenized is not UTF-8", *at);
  for (const TextPart& raw : added_.find_raw(text)) {
    if (raw.id) {
      ids.push_back(*raw.id);
      state.inside = false;
      continue;
    }
    const bool starts = raw.text.data() == text.data();
    const std::string changed = normalizer_.changes_nothing() ? std::string() : normalizer_(raw.text);
    const std::string_view normal = normalizer_.changes_nothing() ? raw.text : changed;
    for (const TextPart& part : added_.find_normalized(normal)) {
      if (part.id) {
        ids.push_back(*part.id);
      } else {
        encode_words(part.text,
                     state.inside                                  ? TextPlace::Continued
                     : starts && part.text.data() == normal.data() ? TextPlace::Start
                                                                   : TextPlace::After,
                     ids);
      }
      state.inside = !part.id;
    }
  }
}

std::string HuggingFaceTokenizer::decode(std::span<const int32_t> ids) const {
  check_ids(ids, vocab_size());
  std::vector<std::string> tokens;
  for (int32_t id : ids)
    if (!added_.is_special(id)) tokens.push_back(tokens_[static_cast<size_t>(id)]);
  return decoder_(std::move(tokens));
}

std::string HuggingFaceTokenizer::text_of_token(int32_t id) const {
  if (const auto added = added_.texts().find(id); added != added_.texts().end()) return added->second;
  const std::string& token = tokens_[static_cast<size_t>(id)];
  return pre_tokenizer_.is_byte_level() ? bytes_of_token(token) : text_of_piece(token);
}

bool HuggingFaceTokenizer::is_part_of_character(int32_t id) const {
  return decoder_.joins_bytes() && id >= 0 && id < vocab_size() &&
         byte_of_token(tokens_[static_cast<size_t>(id)]).has_value();
}

}  // namespace trifold
