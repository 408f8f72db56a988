#include "core/plain_text.h"

#include "core/error.h"

namespace trifold {

namespace {

using namespace std::string_view_literals;

struct Packed {
  std::string_view start;
  const char* name;
  const char* remedy;
};

constexpr Packed kPacked[] = {{"\x1f\x8b"sv, "gzip", "gzip -d"},
                              {"\x28\xb5\x2f\xfd"sv, "zstd", "zstd -d"},
                              {"\xfd"
                               "7zXZ"sv,
                               "xz", "xz -d"},
                              {"BZh"sv, "bzip2", "bzip2 -d"},
                              {"PK\x03\x04"sv, "zip", "unzip"}};

struct Encoding {
  std::string_view mark;
  const char* name;
};

// UTF-32's little-endian mark begins with UTF-16's.
constexpr Encoding kEncodings[] = {{"\xff\xfe\0\0"sv, "UTF-32"},
                                   {"\0\0\xfe\xff"sv, "UTF-32"},
                                   {"\xff\xfe"sv, "UTF-16"},
                                   {"\xfe\xff"sv, "UTF-16"}};

}  // namespace

void expect_plain_text(std::string_view start, const std::string& path) {
  for (const Packed& packed : kPacked)
    if (start.starts_with(packed.start))
      bad_input("{} holds {} data, not text: decompress it first, for example with {}", path, packed.name,
                packed.remedy);
  for (const Encoding& encoding : kEncodings)
    if (start.starts_with(encoding.mark))
      bad_input(
          "{0} is {1} text according to its byte-order mark; convert it to UTF-8: iconv -f {1} -t UTF-8",
          path, encoding.name);
}

}  // namespace trifold
