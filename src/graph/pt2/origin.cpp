#include "graph/pt2/origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace trifold::graph {

namespace {

constexpr size_t kMostText = 300;  // bytes of a path, a class or a line

// The part of `text` after the last `mark`, or all of it.
std::string_view after_last(std::string_view text, char mark) {
  const size_t at = text.rfind(mark);
  return at == text.npos ? text : text.substr(at + 1);
}

std::string shortened(std::string_view text) { return std::string(text.substr(0, kMostText)); }

std::string_view line_at(std::string_view text, size_t at) {
  return text.substr(at, text.find('\n', at) - at);
}

// Of `  File "PATH", line 12, in NAME` and the source on the next line: "FILE:12: source".
std::string call_text(std::string_view trace, size_t at, std::string_view path) {
  const std::string_view header = line_at(trace, at);
  constexpr std::string_view kLine = "\", line ";
  const size_t number = header.find(kLine);
  if (number == header.npos) return {};
  const std::string_view rest = header.substr(number + kLine.size());
  const std::string_view digits = rest.substr(0, std::min(rest.find_first_not_of("0123456789"), rest.size()));
  std::string text = fmt::format("{}:{}", after_last(path, '/'), digits);
  const size_t next = at + header.size() + 1;
  if (next >= trace.size()) return shortened(text);
  std::string_view source = line_at(trace, next);
  source.remove_prefix(std::min(source.find_first_not_of(' '), source.size()));
  return shortened(source.empty() || source.starts_with("File \"") ? text
                                                                   : fmt::format("{}: {}", text, source));
}

std::string python_line(std::string_view trace) {
  constexpr std::string_view kFile = "File \"";
  struct Call {
    size_t at = std::string_view::npos;
    std::string_view path;
  };
  Call own, any;  // the innermost call outside torch/nn, and of all
  for (size_t at = trace.find(kFile); at != trace.npos; at = trace.find(kFile, at + kFile.size())) {
    const size_t path = at + kFile.size();
    any = {at, trace.substr(path, trace.find('"', path) - path)};
    if (any.path.find("/torch/nn/") == trace.npos) own = any;
  }
  const Call& call = own.at != trace.npos ? own : any;
  return call.at != trace.npos ? call_text(trace, call.at, call.path) : std::string();
}

}  // namespace

Origin read_origin(const JsonView& node) {
  Origin origin;
  origin.node = shortened(node.text("name", ""));
  if (!node.has("metadata")) return origin;
  const JsonView metadata = node.at("metadata");
  const std::string stack = metadata.text("nn_module_stack", ""), trace = metadata.text("stack_trace", "");
  const std::string_view innermost = after_last(stack, ';');
  const size_t path = innermost.find(','), type = innermost.rfind(',');
  if (path != innermost.npos && path < type) {
    origin.module = shortened(innermost.substr(path + 1, type - path - 1));
    origin.type = shortened(after_last(innermost.substr(type + 1), '.'));
  }
  origin.line = python_line(trace);
  return origin;
}

}  // namespace trifold::graph
