#include "monitor/event_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <protozero/pbf_builder.hpp>

#include "core/error.h"
#include "core/host_name.h"
#include "core/read_json.h"
#include "files/crc32.h"
#include "monitor/protobuf/messages.h"

namespace trifold {

namespace {

namespace tb = tensorboard;
using protozero::pbf_builder;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The four or eight bytes of a number, the lowest first.
template <class Number>
void append_number(std::string& bytes, Number number) {
  for (size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
}

// TFRecord stores checksums rotated and shifted, so that the checksum of data with checksums in it stays useful.
uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c_of(bytes.data(), bytes.size());
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

// Length, checksum of the length, data, checksum of the data.
std::string tf_record(const std::string& data) {
  std::string bytes;
  append_number(bytes, static_cast<uint64_t>(data.size()));
  append_number(bytes, masked_crc(bytes));
  bytes += data;
  append_number(bytes, masked_crc(data));
  return bytes;
}

// Text of a table in Markdown: one row, without the characters that would end it.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\n')
      safe += ' ';
    else if (c == '|' || c == '\\' || c == '`')
      safe += {'\\', c};
    else
      safe += c;
  }
  return safe;
}

void add_rows(std::string& table, const std::string& name, const nlohmann::ordered_json& value) {
  if (value.is_object()) {
    for (const auto& item : value.items())
      add_rows(table, name.empty() ? item.key() : name + "." + item.key(), item.value());
    return;
  }
  const std::string text = value.is_string() ? value.get<std::string>() : json_text(value);
  table += fmt::format("| {} | {} |\n", cell(name), cell(text));
}

// The text of an event: its only text, or a table of its values.
std::string markdown_of(const RunRecord& record) {
  if (record.values.size() == 1 && record.values.front().is_string())
    return record.values.front().get<std::string>();
  std::string table = "| name | value |\n|---|---|\n";
  add_rows(table, "", record.values);
  return table;
}

// Bytes that are not UTF-8, which names of files may contain, become U+FFFD: strings of messages must be UTF-8.
std::string utf8(const std::string& text) {
  return parse_json(json_text(nlohmann::json(text)), "").get<std::string>();
}

// The tag of a number: its path, or the tag under which Megatron-LM writes the same number.
std::string tag_of(const std::string& path) {
  if (path == "params_norm") return "params-norm";
  if (path == "num_zeros") return "num-zeros";
  return utf8(path);
}

void add_text(pbf_builder<tb::Summary>& summary, const std::string& tag, const std::string& text) {
  pbf_builder<tb::SummaryValue> value(summary, tb::Summary::value);
  value.add_string(tb::SummaryValue::tag, tag);
  {
    pbf_builder<tb::SummaryMetadata> metadata(value, tb::SummaryValue::metadata);
    pbf_builder<tb::PluginData> plugin(metadata, tb::SummaryMetadata::plugin_data);
    plugin.add_string(tb::PluginData::plugin_name, "text");
  }
  pbf_builder<tb::TensorProto> tensor(value, tb::SummaryValue::tensor);
  tensor.add_enum(tb::TensorProto::dtype, tb::kString);
  tensor.add_message(tb::TensorProto::tensor_shape, std::string());
  tensor.add_bytes(tb::TensorProto::string_val, utf8(text));
}

class EventFolder final : public RecordSink {
 public:
  explicit EventFolder(const std::string& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    // TensorBoard reads the files of a folder in the order of their names.
    path_ = (std::filesystem::path(folder) / fmt::format("events.out.tfevents.{:010}.{}.{}",
                                                         static_cast<int64_t>(seconds_since_1970()),
                                                         host_name(), getpid()))
                .string();
    file_.open(path_, std::ios::binary | std::ios::app);
    if (!file_) bad_input("--tensorboard-dir {}: the file {} cannot be created", folder, path_);
    write_event(
        0, [](pbf_builder<tb::Event>& event) { event.add_string(tb::Event::file_version, "brain.Event:2"); });
  }

  void write(const RunRecord& record) override {
    if (const std::optional<int64_t> step = continues_after(record))
      write_event(*step + 1, [](pbf_builder<tb::Event>& event) {
        pbf_builder<tb::SessionLog>(event, tb::Event::session_log)
            .add_enum(tb::SessionLog::status, tb::kStart);
      });
    write_event(record.step, [&](pbf_builder<tb::Event>& event) {
      pbf_builder<tb::Summary> summary(event, tb::Event::summary);
      for_each_number(record, [&](const std::string& path, double number) {
        if (std::isnan(number)) return;
        pbf_builder<tb::SummaryValue> value(summary, tb::Summary::value);
        value.add_string(tb::SummaryValue::tag, tag_of(path));
        value.add_float(tb::SummaryValue::simple_value, static_cast<float>(number));
      });
      if (!record.event.empty()) add_text(summary, utf8(record.event), markdown_of(record));
    });
  }

 private:
  template <class Fill>
  void write_event(int64_t step, Fill&& fill) {
    std::string data;
    {
      pbf_builder<tb::Event> event(data);
      event.add_double(tb::Event::wall_time, seconds_since_1970());
      event.add_int64(tb::Event::step, step);
      fill(event);
    }
    const std::string bytes = tf_record(data);
    check(static_cast<bool>(file_.write(bytes.data(), std::ssize(bytes)).flush()),
          "--tensorboard-dir: writing {} failed; is the disk full?", path_);
  }

  std::string path_;
  std::ofstream file_;
};

}  // namespace

std::unique_ptr<RecordSink> open_event_folder(const std::string& folder) {
  return std::make_unique<EventFolder>(folder);
}

}  // namespace trifold
