#include "conformance/race_report.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

namespace trifold::conformance {

namespace {

using cuda::emulation::AccessKind;
using cuda::emulation::Race;
using cuda::emulation::RaceAccess;

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> some;
  while (pipe && fgets(some.data(), some.size(), pipe.get()) != nullptr) text += some.data();
  return text;
}

// The line of the instruction before `code` and those it was inlined into, up to a kernel's file:
// "pack.cuh:86, inlined at norms.cu:70".
std::string place_of(const void* code) {
  Dl_info info{};
  if (dladdr(code, &info) == 0) return fmt::format("{}", code);
  const auto offset = static_cast<const char*>(code) - static_cast<const char*>(info.dli_fbase) - 1;
  const std::string lines =
      output_of(fmt::format("addr2line -i -e '{}' {:#x} 2>/dev/null", info.dli_fname, offset));
  std::string text;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    std::string_view line(lines.data() + begin, end - begin);
    begin = end + 1;
    line = line.substr(0, line.find(' '));  // "(discriminator 2)" may follow
    line.remove_prefix(line.rfind('/') + 1);
    if (line.starts_with('?')) break;
    text += fmt::format("{}{}", text.empty() ? "" : ", inlined at ", line);
    if (line.find(".cu:") != std::string_view::npos) break;
  }
  return text.empty() ? fmt::format("{}", code) : text;
}

std::string text_of(const RaceAccess& access) {
  const char* verb = access.kind == AccessKind::Read    ? "reads"
                     : access.kind == AccessKind::Write ? "writes"
                                                        : "atomically updates";
  return fmt::format("thread {} of block {} {} it ({})", access.thread, access.block, verb,
                     place_of(access.code));
}

}  // namespace

std::string report(const std::vector<Race>& races) {
  std::string text;
  for (const Race& race : races)
    text += fmt::format("race in {}, {} memory at {}: {}, {}, and nothing orders the two\n", race.kernel,
                        race.shared ? "shared" : "global", race.address, text_of(race.first),
                        text_of(race.second));
  return text;
}

}  // namespace trifold::conformance
