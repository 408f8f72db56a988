#include "models/folders/describe_folder.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/inspect.h"
#include "config/commands/json.h"
#include "core/bytes_text.h"
#include "core/error.h"
#include "models/folders/tokenizer_files.h"
#include "tokenize/tokenizer.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

// A tensor of the files, and the parameters with rows in it.
struct Row {
  const SafeTensor* tensor;
  std::vector<std::string> parameters;
};

// In the order of the parameters.
std::vector<Row> rows_of(const HuggingFaceFolder& folder) {
  std::vector<Row> rows;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < folder.maps().size(); ++i)
    for (const FolderTensor& part : folder.parts()[i])
      for (const SafeTensor* tensor : {part.values.tensor, part.scales.tensor}) {
        if (tensor == nullptr) continue;
        const auto [place, is_new] = places.try_emplace(tensor->name, rows.size());
        if (is_new) rows.push_back({tensor, {}});
        std::vector<std::string>& held = rows[place->second].parameters;
        const std::string& name = folder.maps()[i].ours;
        if (std::find(held.begin(), held.end(), name) == held.end()) held.push_back(name);
      }
  return rows;
}

// "a, b and 6 more"
std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kMostNamed = 3;
  if (names.size() <= kMostNamed) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{}, {} and {} more", names[0], names[1], names.size() - 2);
}

std::string tokenizer_text(const HuggingFaceFolder& folder) {
  DataConfig data = folder.data();
  const std::vector<fs::path> files = tokenizer_files_in(folder.path());
  const std::string problem = name_tokenizer(files, data);
  if (data.tokenizer_type == TokenizerType::Byte) return "tokenizer: byte\n";
  if (!problem.empty()) return fmt::format("tokenizer: none that can be used: {}\n", problem);
  std::error_code missing;
  if (files.empty() || !data.tokenizer_model || !fs::exists(folder.path() / *data.tokenizer_model, missing))
    return "tokenizer: not in the folder\n";
  data.tokenizer_model = (folder.path() / *data.tokenizer_model).string();
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(data);
  std::string text =
      fmt::format("tokenizer: {}, {}, {} tokens", name_of(*data.tokenizer_type),
                  fs::path(*data.tokenizer_model).filename().string(), tokenizer->vocab_size());
  if (const auto end = tokenizer->eod())
    text += fmt::format(", {} ({}) ends a document", *end, tokenizer->name_of_token(*end));
  return text + "\n";
}

}  // namespace

std::string describe(const HuggingFaceFolder& folder) {
  std::string text =
      fmt::format("Hugging Face model {}\nfamily {}, {} safetensors file{}\n{}{}\n", folder.path().string(),
                  type_of(folder.family()), folder.files(), folder.files() == 1 ? "" : "s",
                  model_text(to_json(folder.model()), to_json(ModelConfig{})), tokenizer_text(folder));
  const std::vector<Row> rows = rows_of(folder);
  size_t width = 6;
  int64_t bytes = 0, parameters = 0;
  for (const Row& row : rows) width = std::max(width, row.tensor->name.size());
  text += fmt::format("{:<{}}  {:<5}  {:<20} {:>10}  parameter here\n", "tensor", width, "dtype", "shape",
                      "size");
  for (const Row& row : rows) {
    const std::string shape = fmt::format("[{}]", fmt::join(row.tensor->shape, ", "));
    text +=
        fmt::format("{:<{}}  {:<5}  {:<20} {:>10}  {}\n", row.tensor->name, width, row.tensor->dtype, shape,
                    bytes_text(static_cast<size_t>(row.tensor->bytes())), names_text(row.parameters));
    bytes += row.tensor->bytes();
  }
  for (const WeightMap& map : folder.maps()) parameters += map.shape.elements();
  return text + fmt::format("\ntotal: {} tensors, {}, {} parameters\n", rows.size(),
                            bytes_text(static_cast<size_t>(bytes)), parameters);
}

}  // namespace trifold
