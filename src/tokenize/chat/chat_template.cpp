#include "tokenize/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/read_json.h"
#include "tokenize/chat/jinja_module.h"

namespace trifold {

namespace {

constexpr const char* kJinjaAdvice =
    "The library of Python and its package Jinja2 are needed (Debian and Ubuntu: apt-get install libpython3-dev "
    "python3-jinja2). Then configure and build Trifold again, or name the module's folder in TRIFOLD_MODULE_PATH.";

constexpr ModuleInfo kJinjaModule{kJinjaModuleFile, "trifold_jinja_version", kJinjaModuleVersion,
                                  true};  // global: modules of Python expect to find its symbols

constexpr std::string_view kLibraryProblem = "problem: ";

std::string library_of(void* module) {
  return reinterpret_cast<JinjaModuleLibrary*>(
      function_in(module, kJinjaModuleFile, "trifold_jinja_library"))();
}

void* load_jinja(const std::string& where) {
  std::string tried;
  void* module = open_module(module_folders(), kJinjaModule, tried);
  if (module == nullptr)
    fail("{}: the module {}, which renders chat templates, cannot be loaded:{}\n{}", where, kJinjaModuleFile,
         tried, kJinjaAdvice);
  if (const std::string library = library_of(module); library.starts_with(kLibraryProblem))
    fail("{}: the module {} cannot use Python: {}\n{}", where, kJinjaModuleFile,
         library.substr(kLibraryProblem.size()), kJinjaAdvice);
  return module;
}

// The module, opened for the first template.
void* jinja_module(const std::string& where) {
  static void* const kModule = load_jinja(where);
  return kModule;
}

// BadInput for a problem that the module reports.
[[noreturn]] void refuse(const std::string& where, const nlohmann::json& answer) {
  const JsonView view(answer, where);
  const std::string problem = view.at("problem").text();
  const int64_t line = view.at("line").integer(0);
  if (line > 0) bad_input("the chat template {}, line {}: {}", where, line, problem);
  bad_input("the chat template {}: {}", where, problem);
}

// By hand: std::regex recurses for each character.
bool has_generation_tag(std::string_view text) {
  static constexpr std::string_view kSpace = " \t\n\v\f\r", kName = "generation";
  const auto skip_sign = [&text] {
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  };
  const auto skip_space = [&text] {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  };
  for (size_t at = text.find("{%"); at != std::string_view::npos; at = text.find("{%")) {
    text.remove_prefix(at + 2);
    skip_sign();
    skip_space();
    if (!text.starts_with(kName)) continue;
    text.remove_prefix(kName.size());
    skip_space();
    skip_sign();
    if (text.starts_with("%}")) return true;
  }
  return false;
}

}  // namespace

// The line of trimmed white space at the border of a block is kept by an empty expression.
std::string ChatTemplateSource::joined() const {
  if (tools_text.empty()) return text;
  if (has_generation_tag(text) != has_generation_tag(tools_text))
    bad_input(
        "of the chat templates {} and {} only one marks answers by {{% generation %}}: one file cannot hold both; mark "
        "them in both or in neither, or name a single template, --chat-template",
        where, tools_where);
  static constexpr const char* kBorder = "{{ '' }}";
  const auto without_last_line_end = [](const std::string& template_text) {
    return template_text.ends_with('\n') ? template_text.substr(0, template_text.size() - 1) : template_text;
  };
  return fmt::format(
      "{{% if tools is defined and tools is not none %}}{0}{1}{0}{{% else %}}{0}{2}{0}{{% endif %}}", kBorder,
      without_last_line_end(tools_text), without_last_line_end(text));
}

struct ChatTemplate::Compiled {
  Compiled(const std::string& text, std::string from)
      : where(std::move(from)), marks_answers(has_generation_tag(text)) {
    std::array<char, 2048> why{};
    const auto compile = reinterpret_cast<JinjaModuleCompile*>(
        function_in(jinja_module(where), kJinjaModuleFile, "trifold_jinja_compile"));
    module.reset(compile(text.data(), text.size(), why.data(), why.size()));
    if (module != nullptr) return;
    nlohmann::json answer;
    try {
      answer = parse_json(why.data(), where);
    } catch (const Error&) {  // cut off, or not of the template
      bad_input("the chat template {}: {}", where, why.data());
    }
    refuse(where, answer);
  }

  std::string where;
  bool marks_answers;
  std::unique_ptr<JinjaModuleTemplate> module;
};

ChatTemplate::ChatTemplate(ChatTemplateSource source)
    : source_(std::move(source)), usual_(std::make_unique<Compiled>(source_.text, source_.where)) {
  if (!source_.tools_text.empty())
    with_tools_ = std::make_unique<Compiled>(source_.tools_text, source_.tools_where);
}

const ChatTemplate::Compiled& ChatTemplate::compiled_for(const nlohmann::ordered_json& variables) const {
  const auto tools = variables.find("tools");
  const bool given = tools != variables.end() && !tools->is_null();
  return given && with_tools_ ? *with_tools_ : *usual_;
}

bool ChatTemplate::marks_answers(const nlohmann::ordered_json& variables) const {
  return compiled_for(variables).marks_answers;
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

RenderedChat ChatTemplate::render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                  const nlohmann::ordered_json& variables) const {
  for (const char* own : {"messages", "add_generation_prompt"})
    if (variables.contains(own))
      bad_input("chat_template_kwargs has '{}', which the conversation sets: leave it out", own);
  nlohmann::ordered_json values = source_.special_tokens;
  values.update(variables);
  nlohmann::ordered_json request = nlohmann::ordered_json::object();
  request["messages"] = messages;
  request["add_generation_prompt"] = add_generation_prompt;
  request["variables"] = std::move(values);
  request["today"] = source_.today;
  const std::string text = json_text(request);
  std::string words;
  const Compiled& compiled = compiled_for(variables);
  compiled.module->render(
      text.data(), text.size(),
      [](void* to, const char* part, size_t size) { static_cast<std::string*>(to)->assign(part, size); },
      &words);
  const nlohmann::json answer = parse_json(words, compiled.where, kJsonLineLimits);
  const JsonView view(answer, compiled.where);
  if (view.has("problem")) refuse(compiled.where, answer);
  RenderedChat rendered{view.at("text").text(), {}};
  view.at("spans").each([&](const JsonView& span) {
    const std::vector<int64_t> ends = span.integers(0, std::ssize(rendered.text));
    rendered.answers.push_back({ends.at(0), ends.at(1)});
  });
  return rendered;
}

JinjaReport report_jinja() {
  JinjaReport report{report_module(module_folders(), kJinjaModule), "", ""};
  if (report.module.module == nullptr) {
    report.problem = report.module.problem;
    return report;
  }
  const std::string library = library_of(report.module.module);
  if (library.starts_with(kLibraryProblem))
    report.problem = library.substr(kLibraryProblem.size());
  else
    report.library = library;
  return report;
}

std::string todays_date() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &local);
  return text.data();
}

}  // namespace trifold
