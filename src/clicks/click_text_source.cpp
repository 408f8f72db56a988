#include "clicks/click_text_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "clicks/click_layout.h"
#include "core/error.h"

namespace trifold {

namespace {

constexpr int64_t kGroup = 256;
constexpr int64_t kReleasedBytes = int64_t{1} << 24;  // bytes of the file, at a time

}  // namespace

TextClicks::TextClicks(const std::string& path, std::vector<int64_t> rows, const ClickRules& rules,
                       const TextOptions& options)
    : file_(path), options_(options), layout_(find_layout(file_, options.format)), rules_(rules) {
  layout_.rules.need = label_need(options.needs_labels, options.unlabelled);
  keep_columns(layout_, options.keep, path);
  if (options.needs_labels) check_labels(layout_, path);
  schema_.labeled = layout_.labels > 0;
  if (rules.transform == DenseTransform::LogMin)
    bad_input("the dense transform logmin needs the minimum over all samples: preprocess the data with it");
  if (rows.size() == 1) rows.resize(static_cast<size_t>(layout_.tables), rows[0]);
  if (std::ssize(rows) != layout_.tables)
    bad_input("{} has {} column{} of ids, but there are {} tables, by --table-rows or by the checkpoint",
              path, layout_.tables, layout_.tables == 1 ? "" : "s", rows.size());
  schema_.dense = layout_.dense;
  schema_.dense_transform = name_of(rules.transform);
  schema_.tables.resize(rows.size());
  for (const TextColumn& column : layout_.columns)
    if (column.kind == TextColumn::Kind::Id)
      schema_.tables[static_cast<size_t>(column.index)] = {
          column.name, rows[static_cast<size_t>(column.index)], 1, mapping_of(rules.policy)};
  check_schema(schema_);
  index_lines();
  if (samples_ > 0) check_malformed(report_, options.max_malformed);
  if (samples_ == 0) bad_input("{} has no valid line\n{}", path, report_.text());
}

// Whether a line that is not malformed is a sample; counts those without a label.
bool TextClicks::is_sample(const ClickRow& row) {
  if (!schema_.labeled || row.labels[0] != kNoLabel) return true;
  ++report_.unlabelled;
  if (options_.unlabelled == Unlabelled::Keep) unlabelled_.push_back(samples_);
  return options_.unlabelled != Unlabelled::Skip;
}

void TextClicks::index_lines() {
  std::string_view text = text_of(file_);
  const char* const begin = text.data();
  for (int64_t skipped = 1; skipped < layout_.first_line; ++skipped) take_line(text);
  ClickRow row(layout_);
  std::vector<float> dense(static_cast<size_t>(layout_.dense));
  int64_t released = 0;
  for (int64_t number = layout_.first_line; !text.empty(); ++number) {
    const int64_t start = text.data() - begin;
    if (start - released > kReleasedBytes) {
      file_.release(released, start);
      released = start;
    }
    const std::optional<std::string_view> content = take_line(text);
    if (!content) refuse_long_line(file_.path(), number);
    if (is_blank_line(*content, layout_.separator)) continue;
    ++report_.lines;
    row.begin(dense.data());
    const bool is_read = parse_line(layout_, *content, row);
    if (!is_read) report_.add(file_.path(), number, explain_line(layout_, *content));
    if (!is_read || !is_sample(row)) {
      report_.left_out.push_back(report_.lines - 1);
      continue;
    }
    if (samples_ % kGroup == 0) groups_.push_back(start);
    const int64_t behind = start - groups_.back();
    if (behind > std::numeric_limits<uint32_t>::max())
      bad_input("{}:{}: the lines before it are too long", file_.path(), number);
    starts_.push_back(static_cast<uint32_t>(behind));
    ++samples_;
  }
}

std::string_view TextClicks::line_of(int64_t sample) const {
  std::string_view text = text_of(file_);
  const int64_t start = groups_[static_cast<size_t>(sample / kGroup)] + starts_[static_cast<size_t>(sample)];
  text.remove_prefix(static_cast<size_t>(start));
  return take_line(text).value_or(std::string_view{});
}

int64_t TextClicks::line_number(int64_t sample) const {
  const std::string_view text = text_of(file_);
  return 1 + std::count(text.data(), line_of(sample).data(), '\n');
}

void TextClicks::fill(std::span<const int64_t> positions, ClickPart& out) const {
  ClickRow row(layout_);
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto slot = static_cast<int64_t>(i);
    row.begin(out.dense(slot));
    check(parse_line(layout_, line_of(positions[i]), row), "{} has changed since it was opened",
          file_.path());
    if (schema_.labeled && row.labels[0] != kNoLabel)
      out.label(slot) = row.labels[0];
    else if (schema_.labeled && options_.unlabelled != Unlabelled::Negative)
      out.leave_out(slot, 0);
    for (int d = 0; d < layout_.dense; ++d) row.dense[d] = transform_dense(rules_.transform, row.dense[d]);
    for (int t = 0; t < layout_.tables; ++t) {
      const ClickTable& table = schema_.table(t);
      const uint64_t id = row.ids[static_cast<size_t>(t)];
      if (id >= static_cast<uint64_t>(table.rows) && rules_.policy == IdPolicy::Error)
        report_id({file_.path(), "line", line_number(positions[i])}, table,
                  shown_id(layout_, line_of(positions[i]), t));
      *out.bag(t, slot, 1) = bounded_id(id, table, rules_.policy, {});
    }
  }
}

std::string TextClicks::kept(int64_t sample, int column) const {
  ClickRow row(layout_);
  std::vector<float> dense(static_cast<size_t>(layout_.dense));
  row.begin(dense.data());
  check(parse_line(layout_, line_of(sample), row), "{} has changed since it was opened", file_.path());
  return row.kept[static_cast<size_t>(column)];
}

}  // namespace trifold
