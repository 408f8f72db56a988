#include "preprocess/click_reader.h"

#include <string_view>
#include <utility>
#include <vector>

#include "clicks/click_input.h"
#include "clicks/click_layout.h"
#include "core/error.h"

namespace trifold {

namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

class TextReader final : public ClickReader {
 public:
  TextReader(const std::string& path, const PreprocessOptions& options)
      : input_(path),
        options_(options),
        layout_(find_layout(path, input_.beginning(), options.format, options.columns)),
        has_lines_before_(layout_.first_line > 1) {
    apply_options(layout_, options, path);
  }

  const TextLayout& layout() const override { return layout_; }
  int64_t size() const override { return input_.size(); }
  int64_t first_line() const override { return layout_.first_line; }
  double share() const override { return share_; }
  bool next(std::span<ClickPiece> pieces, ThreadPool& pool, const DropRule& drop) override;

 private:
  ClickInput input_;
  const PreprocessOptions& options_;
  TextLayout layout_;
  bool has_lines_before_;  // the lines before the samples have not been read yet
  double share_ = 0;
};

bool TextReader::next(std::span<ClickPiece> pieces, ThreadPool& pool, const DropRule& drop) {
  const auto window = input_.next(pieces.size() * kPieceBytes);
  if (!window) return false;
  const std::string_view text = window->text;
  std::vector<size_t> cuts(pieces.size() + 1);
  if (std::exchange(has_lines_before_, false)) {
    std::string_view rest = text;
    for (int64_t line = 1; line < layout_.first_line; ++line) take_line(rest);
    cuts[0] = text.size() - rest.size();
  }
  for (size_t p = 1; p < cuts.size(); ++p) cuts[p] = click_line_start(text, cuts[p - 1] + kPieceBytes);
  cuts.back() = text.size();
  pool.run([&](int worker) {
    const auto p = static_cast<size_t>(worker);
    parse_piece(layout_, text.substr(cuts[p], cuts[p + 1] - cuts[p]),
                window->first_byte + static_cast<int64_t>(cuts[p]), options_, drop, pieces[p]);
  });
  share_ = window->share;
  return true;
}

}  // namespace

void apply_options(TextLayout& layout, const PreprocessOptions& options, const std::string& path) {
  layout.rules.need = label_need(options.needs_labels, options.unlabelled);
  keep_columns(layout, options.keep, path);
  if (!options.split_by.empty()) time_column(layout, options.split_by, path);
}

void refuse_names(const PreprocessOptions& options, const std::string& path) {
  if (options.keep.empty() && options.split_by.empty()) return;
  bad_input("{}: its columns have no names, so --{} has no effect: leave it out", path,
            options.keep.empty() ? "split-by" : "keep");
}

std::unique_ptr<ClickReader> open_click_reader(const std::string& path, const PreprocessOptions& options,
                                               int threads) {
  if (is_parquet_input(path)) return open_parquet_reader(path, options, threads);
  if (is_array_input(path)) return open_array_reader(path, options);
  if (is_norm_file(path)) return open_norm_reader(path, options);
  return std::make_unique<TextReader>(path, options);
}

}  // namespace trifold
