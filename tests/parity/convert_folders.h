// ConvertTest: a scratch folder, and conversions of golden models of Hugging Face and their changed copies.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/reader.h"
#include "convert/convert.h"
#include "files/file.h"
#include "support/test_data.h"
#include "support/training.h"

namespace trifold::test {

class ConvertTest : public testing::Test {
 protected:
  ConvertTest() : folder_(std::filesystem::temp_directory_path() / ("trifold_convert_" + random_id())) {
    std::filesystem::create_directories(folder_);
  }
  ~ConvertTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static std::filesystem::path golden(const std::string& name) {
    return std::filesystem::path(test_data()) / "golden" / name;
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  Converted import(const std::string& from, const std::string& to, double max_memory = 256) {
    ConvertConfig config;
    config.load = from;
    config.save = to;
    config.max_memory = max_memory;
    return import_model(config);
  }
  Converted export_to(const std::string& from, const std::string& to, double max_memory = 256,
                      double max_file_size = 5, std::optional<DType> dtype = {}) {
    ConvertConfig config;
    config.load = from;
    config.save = to;
    config.max_memory = max_memory;
    config.max_file_size = max_file_size;
    config.dtype = dtype;
    CheckpointReader reader(from);
    return export_model(reader, config);
  }
  // A copy of a golden model whose config.nlohmann::json is changed.
  std::string changed(const std::function<void(nlohmann::json&)>& change, const char* model = "hf_gpt2") {
    const std::filesystem::path to = folder_ / "changed";
    std::filesystem::remove_all(to);
    std::filesystem::copy(golden(model), to);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(to / "config.json"));
    change(config);
    std::ofstream(to / "config.json") << config;
    return to.string();
  }
  std::string refusal(const std::string& from) {
    try {
      import(from, at("refused"));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_FALSE(std::filesystem::exists(at("refused"))) << "something was written";
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  std::string refusal_to_export(const std::string& from, const std::optional<std::string>& family = {}) {
    ConvertConfig config;
    config.load = from;
    config.save = at("refused");
    config.hugging_face_family = family;
    CheckpointReader reader(from);
    try {
      export_model(reader, config);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_FALSE(std::filesystem::exists(at("refused"))) << "something was written";
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
  static nlohmann::json config_of(const std::string& model) {
    return nlohmann::json::parse(std::ifstream(model + "/config.json"));
  }

  std::filesystem::path folder_;
};

}  // namespace trifold::test
