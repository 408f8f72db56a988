#include "launch/placement_lines.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "core/bytes_text.h"
#include "launch/progress.h"

namespace trifold::launch {

namespace {

std::string_view cut_text(PlacementKind kind) {
  switch (kind) {
    case PlacementKind::Table:
      return "whole";
    case PlacementKind::Row:
      return "by rows";
    case PlacementKind::Column:
      return "by columns";
    case PlacementKind::Replicated:
      return "replicated";
  }
  return "";
}

}  // namespace

std::vector<std::string> placement_lines(const std::vector<EmbeddingTable>& tables,
                                         const std::vector<TablePlacement>& placement,
                                         const std::vector<RankLoad>& loads) {
  std::map<PlacementKind, int> kinds;
  int64_t rows = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    ++kinds[placement[t].kind];
    rows += tables[t].rows;
  }
  std::vector<std::string> parts;
  for (const auto& [kind, count] : kinds) parts.push_back(fmt::format("{} {}", count, cut_text(kind)));
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} with {} rows in all{}", tables.size(), rows,
                              loads.size() > 1 ? fmt::format(": {}", fmt::join(parts, ", ")) : ""));
  if (loads.size() == 1) return lines;
  for (size_t rank = 0; rank < loads.size(); ++rank)
    lines.push_back(fmt::format("rank {:>3}: {:>3} part{} {:>10}, a step moves {:>10} of it and sends {:>10}",
                                rank, loads[rank].tables, loads[rank].tables == 1 ? ", " : "s,",
                                bytes_text(static_cast<size_t>(loads[rank].bytes)),
                                bytes_text(static_cast<size_t>(loads[rank].moved_bytes())),
                                bytes_text(static_cast<size_t>(loads[rank].sent_bytes()))));
  return lines;
}

std::string parts_text(const RecommenderMemory& memory) {
  std::string text =
      fmt::format("tables {}, their state {}, exchange {}, MLPs {}, activations {}",
                  bytes_text(memory.tables), bytes_text(memory.table_state), bytes_text(memory.exchange),
                  bytes_text(memory.dense), bytes_text(memory.activations));
  if (memory.workspace > 0) text += ", work space " + bytes_text(memory.workspace);
  if (memory.files > 0) text += "; tables in files " + bytes_text(memory.files);
  if (memory.pinned > 0) text += "; pinned on the host " + bytes_text(memory.pinned);
  if (memory.host > 0) text += ", owners of rows and caches there " + bytes_text(memory.host);
  return text;
}

}  // namespace trifold::launch
