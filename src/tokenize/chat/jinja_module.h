// The interface of trifold_jinja.so (src/tokenize/chat/jinja), which renders chat templates with Python's library Jinja2:
// the library for which models' templates are written. The program loads it when the first template is rendered
// (tokenize/chat/chat_template.h), so it starts without Python. Only C strings and integers are passed; the module does
// not link the program's code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trifold {

constexpr const char* kJinjaModuleFile = "trifold_jinja.so";
constexpr int64_t kJinjaModuleVersion = 1;

// A compiled template. Its functions may be called from several threads; Python's lock lets one at a time compute.
class JinjaModuleTemplate {
 public:
  virtual ~JinjaModuleTemplate() = default;
  // Renders with the variables of `request`, JSON text: an object {"messages": [...], "add_generation_prompt": ...,
  // "variables": {...}, "today": "YYYY-MM-DD"}. Calls `take` once, with JSON text that is valid during the call:
  // {"text": "...", "spans": [[begin, end], ...]}, bytes of the text between the tags {% generation %}, or
  // {"problem": "...", "line": n} with the line of the template, 0 if it is not known.
  virtual void render(const char* request, size_t bytes,
                      void (*take)(void* to, const char* text, size_t size), void* to) = 0;
};

// Names that the module exports.
using JinjaModuleVersion = int64_t();  // trifold_jinja_version
// trifold_jinja_library: the versions of Jinja2 and Python, or why they cannot be used, after "problem: "; lives until
// the process ends.
using JinjaModuleLibrary = const char*();
// trifold_jinja_compile: compiles a template. Returns null, with the problem in why[0, bytes), if that fails. The caller
// owns the result.
using JinjaModuleCompile = JinjaModuleTemplate*(const char* source, size_t size, char* why, size_t bytes);

}  // namespace trifold
