#include "config/options/file_use.h"

#include <fmt/format.h>

namespace trifold {

namespace {

std::string json_member(std::string_view command) {
  return fmt::format("\"made_by\": \"trifold {}\"", command);
}

std::string comment(std::string_view command) { return fmt::format("<!-- made by trifold {} -->", command); }

// `text` after the first line of a document.
std::string with_second_line(std::string document, const std::string& text) {
  const size_t end = document.find('\n');
  return end == std::string::npos ? document : document.insert(end + 1, text + "\n");
}

}  // namespace

OutputMark json_mark(std::string_view command) { return {"{", json_member(command)}; }
OutputMark svg_mark(std::string_view command) { return {"<svg", comment(command)}; }
OutputMark trace_mark() { return {"\n", "made by trifold"}; }
OutputMark html_mark(std::string_view command) { return {"<!doctype html>", comment(command)}; }

std::string marked_json(std::string object, std::string_view command) {
  const size_t member = object.find('"');
  if (member == std::string::npos) return object;
  const std::string indentation(member - object.find('\n') - 1, ' ');
  return with_second_line(std::move(object), indentation + json_member(command) + ",");
}

std::string marked_svg(std::string document, std::string_view command) {
  return with_second_line(std::move(document), comment(command));
}

std::string marked_html(std::string document, std::string_view command) {
  return with_second_line(std::move(document), comment(command));
}

}  // namespace trifold
