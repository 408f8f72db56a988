#include "train/tune_products.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "checkpoint/collective.h"
#include "core/read_json.h"
#include "files/file.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kFormat = 2;  // 1: products did not say whether they add
constexpr const char* kOption = "--tune-products";

// The content that the checksum covers.
std::string content(const ProductTable& table) {
  std::string text = table.made_for + "\n";
  for (const ProductChoice& choice : table.choices) text += choice.product + "\n" + choice.algorithm + "\n";
  return text;
}

int64_t checksum(const ProductTable& table) {
  const std::string text = content(table);
  return crc_of_memory(text.data(), text.size());
}

std::optional<std::string> text_of_file(const std::string& path) {
  if (!fs::exists(path)) return std::nullopt;
  const File file(path, File::Mode::Read);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(text.data(), text.size(), 0);
  return text;
}

}  // namespace

std::string to_text(const ProductTable& table) {
  Json products = Json::array();
  for (const ProductChoice& choice : table.choices)
    products.push_back({{"product", choice.product}, {"algorithm", choice.algorithm}});
  const Json whole = {{"trifold_products", kFormat},
                      {"made_for", table.made_for},
                      {"checksum", checksum(table)},
                      {"products", products}};
  return json_text(whole, 1) + "\n";
}

ProductTable parse_products(const std::string& text, const std::string& where) {
  const Json whole = parse_json(text, where);
  const JsonView view(whole, where);
  if (const int64_t format = view.at("trifold_products").integer(); format != kFormat)
    bad_input("{}: its format is {}, and this version of Trifold has {}", where, format, kFormat);
  ProductTable table;
  table.made_for = view.at("made_for").text();
  view.at("products").each([&](const JsonView& product) {
    table.choices.push_back({product.at("product").text(), product.at("algorithm").text()});
  });
  if (view.at("checksum").integer() != checksum(table))
    bad_input("{}: the file is damaged: its checksum is not that of its products", where);
  return table;
}

ProductMeasuring::ProductMeasuring(Communicator& world, ProductTuning& tuning, std::string file)
    : world_(world), tuning_(tuning), file_(std::move(file)) {
  const std::string where = std::string(kOption) + " " + file_;
  // Rank 0 has the table of the file, the others are empty.
  const std::vector<std::string> tables = gather_texts(world_, "reading " + where, [&] {
    ProductTable table{tuning_.made_for(), {}};
    if (world_.rank() != 0) return to_text(table);
    if (const std::optional<std::string> text = text_of_file(file_)) {
      ProductTable found;
      try {
        found = parse_products(*text, where);
      } catch (const Error& error) {
        bad_input("{}\nName another file, or remove this one: products are then measured again.",
                  error.what());
      }
      if (found.made_for == table.made_for)
        table.choices = std::move(found.choices);
      else
        was_made_for_ = found.made_for;
    }
    return to_text(table);
  });
  const ProductTable first = parse_products(tables[0], "the products of rank 0");
  for (size_t rank = 1; rank < tables.size(); ++rank)
    if (const std::string other = parse_products(tables[rank], "a rank's products").made_for;
        other != first.made_for)
      bad_input(
          "{}: rank 0 has {}, rank {} has {}: ranks that take the same algorithms need the same device "
          "and library; give {} off",
          where, first.made_for, rank, other, kOption);
  known_ = first.choices.size();
  tuning_.use(first.choices);
  tuning_.measure(true);
  world_.barrier();  // thread ranks share a device: no rank measures before all have arrived
}

ProductMeasuring::~ProductMeasuring() { tuning_.measure(false); }

std::string ProductMeasuring::finish() {
  world_.barrier();
  tuning_.measure(false);
  const std::string made_for = tuning_.made_for();
  const std::vector<std::string> tables = gather_texts(world_, "comparing measured products", [&] {
    return to_text({made_for, tuning_.choices()});
  });
  std::map<std::string, std::string> all;
  for (const std::string& text : tables)
    for (ProductChoice& choice : parse_products(text, "a rank's products").choices)
      all.emplace(std::move(choice.product), std::move(choice.algorithm));
  ProductTable merged{made_for, {}};
  for (const auto& [product, algorithm] : all) merged.choices.push_back({product, algorithm});
  tuning_.use(merged.choices);
  const size_t added = merged.choices.size() - known_;
  if (added == 0) return {};
  gather_texts(world_, fmt::format("writing {} {}", kOption, file_), [&] {
    if (world_.rank() == 0) replace_text(file_, to_text(merged));
    return std::string();
  });
  std::string measured =
      fmt::format("{} product{} measured and kept in {}", added, added == 1 ? " was" : "s were", file_);
  if (was_made_for_.empty()) return measured;
  return fmt::format("{} was made for {}, and this is {}: {}", file_, was_made_for_, made_for, measured);
}

}  // namespace trifold
