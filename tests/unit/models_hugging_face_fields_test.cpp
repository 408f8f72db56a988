// The tables of fields of config.json against those of transformers' own classes, which
// tools/reference/hugging_face_fields.py wrote, and the reader of such tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/error.h"
#include "models/hugging_face/config_fields.h"
#include "models/hugging_face/hugging_face.h"
#include "models/hugging_face/hugging_face_family.h"
#include "support/test_data.h"

namespace trifold {
namespace {

using nlohmann::json;

const json& of_transformers() {
  static const json kFields =
      json::parse(std::ifstream(test::test_data() + "/golden/hugging_face_fields.json"));
  return kFields;
}

// The names that count for a field of a class, as its attribute_map has them: a name that is no field of the class
// is set last, and wins.
json names_of(const std::string& field, const json& other_names) {
  for (const auto& [other, own] : other_names.items())
    if (field == own || field == other) return {field == own ? other : own.get<std::string>(), field};
  return {field};
}

class HuggingFaceFields : public testing::TestWithParam<const HuggingFaceFamily*> {};

TEST_P(HuggingFaceFields, AreThoseOfTheClassWithItsDefaults) {
  const json& family = of_transformers().at("families").at(GetParam()->type);
  const json ours = hugging_face_fields().at("families").at(GetParam()->type);
  for (const auto& [name, value] : family.at("fields").items()) {
    ASSERT_TRUE(ours.contains(name)) << name << " is in no table";
    EXPECT_EQ(ours.at(name).at("default"), value) << name;
    EXPECT_EQ(ours.at(name).at("of_class"), true) << name;
    EXPECT_EQ(ours.at(name).at("names"), names_of(name, family.at("other_names"))) << name;
  }
  for (const auto& [name, field] : ours.items()) {
    const bool theirs = family.at("fields").contains(name) || of_transformers().at("common").contains(name);
    EXPECT_EQ(field.at("of_class"), theirs) << name;
  }
  const json& theta = family.at("rope_theta");
  const auto default_of = [&](std::initializer_list<const char*> fields) {
    for (const char* field : fields)
      if (ours.contains(field)) return ours.at(field).at("default");
    return json();
  };
  EXPECT_EQ(default_of({"rotary_emb_base", "global_rope_theta", "rope_theta"}), theta);
  EXPECT_EQ(default_of({"rope_local_base_freq", "local_rope_theta"}),
            family.value("rope_local_base_freq", json()));
}

INSTANTIATE_TEST_SUITE_P(Families, HuggingFaceFields,
                         testing::ValuesIn(hugging_face_families().begin(), hugging_face_families().end()),
                         [](const auto& family) {
                           std::string name = family.param->type;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(HuggingFaceFieldsOfAll, AreThoseOfTheBaseClassAndOfRope) {
  const json ours = hugging_face_fields();
  for (const auto& [name, value] : of_transformers().at("common").items()) {
    ASSERT_TRUE(ours.at("common").contains(name)) << name;
    EXPECT_EQ(ours.at("common").at(name).at("default"), value) << name;
  }
  for (const json& name : of_transformers().at("rope_parameters"))
    EXPECT_TRUE(ours.at("rope_parameters").contains(name.get<std::string>())) << name;
}

// A field that is to be read and that nobody asks for would be as good as unknown.
TEST(HuggingFaceFieldsOfAll, AreAllRead) {
  for (const HuggingFaceFamily* family : hugging_face_families()) {
    const json config{{"architectures", {"BertForSequenceClassification"}},
                      {"num_hidden_layers", family->type == std::string("gpt2") ? json() : json(4)}};
    ConfigReader from(config, family->fields);
    family->read(from);
    EXPECT_EQ(from.unread(), std::vector<std::string_view>{}) << family->type;
  }
}

// The rules of a run name options, a file has fields.
TEST(HuggingFaceFieldsOfAll, AreNamedInMessages) {
  const auto refusal = [](const json& config) -> std::string {
    try {
      from_hugging_face(config, "here");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::pair<json, const char*> cases[] = {
      {{{"model_type", "mixtral"}, {"num_key_value_heads", 5}}, "'num_key_value_heads' 5 does not divide"},
      {{{"model_type", "gpt2"}, {"n_head", 5}}, "'n_embd' 768 is not divisible by 'n_head' 5"},
      {{{"model_type", "llama"}, {"max_position_embeddings", 0}},
       "'max_position_embeddings' 0 is not possible"},
      {{{"model_type", "deepseek_v3"}, {"kv_lora_rank", 0}}, "'kv_lora_rank' 0 is not possible"}};
  for (const auto& [config, part] : cases)
    EXPECT_NE(refusal(config).find(part), std::string::npos) << part << "\n" << refusal(config);
}

std::string problems_of(const json& config, const ConfigFields& fields) {
  const ConfigReader from(config, fields, false);
  try {
    from.finish("x");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigReader, KnowsTheTableAlone) {
  const ConfigFields fields{field({"size"}, 4), fixed("kind", "plain", {"simple"}), unused({"note"}, 1)};
  EXPECT_EQ(problems_of({{"size", 5}, {"kind", "simple"}, {"note", {1, 2}}, {"other", nullptr}}, fields), "");
  for (const auto& [config, problem] : std::vector<std::pair<json, const char*>>{
           {{{"sise", 5}}, "'sise' is 5; this field is not known here"},
           {{{"kind", "odd"}}, "'kind' is \"odd\"; only \"plain\" is supported"},
           {{{"size", nullptr}}, "'size' is null; give a value, or remove it for 4"}})
    EXPECT_NE(problems_of(config, fields).find(problem), std::string::npos) << problems_of(config, fields);
}

TEST(ConfigReader, TakesTheFirstOfSeveralNames) {
  const ConfigFields fields{field({"new", "old"}, 4)};
  const auto size = [&](const json& config) { return ConfigReader(config, fields, false).size("old"); };
  EXPECT_EQ(size(json::object()), 4);
  EXPECT_EQ(size({{"old", 5}}), 5);
  EXPECT_EQ(size({{"new", 6}}), 6);
  EXPECT_EQ(size({{"new", 6}, {"old", 5}}), 6);
}

TEST(ConfigReader, TellsNullFromAbsence) {
  const ConfigFields fields{field({"rank"}, 4).or_null(), field({"flag"}, true).or_null()};
  const json config{{"rank", nullptr}, {"flag", nullptr}};
  ConfigReader from(config, fields, false);
  EXPECT_EQ(from.size_or_null("rank"), std::nullopt);
  EXPECT_FALSE(from.flag("flag"));
  const json nothing = json::object();
  EXPECT_EQ(ConfigReader(nothing, fields, false).size_or_null("rank"), 4);
}

}  // namespace
}  // namespace trifold
