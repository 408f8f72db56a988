// Rules of options (config/options/rule.h): each form holds and is broken, and its message; the rules of all commands
// name options and values that exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/command_line/command_info.h"
#include "config/fields/schedule.h"
#include "config/options/problems.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

struct Kitchen {
  bool stove = false, oven = false, gas = false;
  int pans = 1, plates = 6;
  std::optional<int64_t> guests;
  double heat = 1.5;
  std::string fuel = "wood";
};

// Adds one rule to an option of a kitchen.
using AddRule = std::function<void(OptionTable&)>;

OptionTable options_of(Kitchen& kitchen, const AddRule& add_rule) {
  OptionTable table;
  table.add("stove", &kitchen.stove, "");
  table.add("oven", &kitchen.oven, "");
  table.add("gas", &kitchen.gas, "");
  table.add("pans", &kitchen.pans, "").range(1, 8);
  table.add("plates", &kitchen.plates, "").range(1, 12);
  table.add("guests", &kitchen.guests, "").range(1, 100);
  table.add("heat", &kitchen.heat, "");
  table.add("fuel", &kitchen.fuel, "").one_of({"wood", "coal", "oil"});
  add_rule(table);
  return table;
}

Words broken(const AddRule& add_rule, const std::function<void(Kitchen&)>& change) {
  Kitchen plain, kitchen;
  change(kitchen);
  const OptionTable defaults = options_of(plain, add_rule), table = options_of(kitchen, add_rule);
  Problems problems(table);
  problems.check_rules(table, defaults, [](const Option&, const Rule&) { return true; });
  const std::vector<Problem> list = problems.take();
  for (const Problem& problem : list)
    for (const std::string& name : problem.options) EXPECT_TRUE(table.find(name)) << name;
  return texts_of(list);
}

TEST(ConfigRules, Needs) {
  const AddRule rule = [](OptionTable& table) { table.change("stove").needs("oven"); };
  EXPECT_EQ(broken(rule, [](Kitchen&) {}), Words());
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.stove = k.oven = true; }), Words());
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.oven = true; }), Words());
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.stove = true; }),
            Words{"--stove needs --oven: give both, or neither"});
}

TEST(ConfigRules, NeedsOneOfSeveral) {
  const AddRule rule = [](OptionTable& table) {
    table.change("guests").needs(When("pans", AtLeast{3}).or_when("fuel", "oil|coal"), "because they eat",
                                 "cook more");
  };
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.guests = 5, k.pans = 3; }), Words());
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.guests = 5, k.fuel = "coal"; }), Words());
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.guests = 5; }),
            Words{"--guests 5 needs --pans 3 or more, or --fuel oil or coal, because they eat: cook more"});
}

TEST(ConfigRules, Excludes) {
  const AddRule rule = [](OptionTable& table) { table.change("gas").excludes({"fuel", "wood|coal"}); };
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.gas = true, k.fuel = "oil"; }), Words());
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.gas = true; }),
            Words{"--gas is not possible with --fuel wood: leave one of them out"});
}

TEST(ConfigRules, HasNoEffect) {
  const AddRule rule = [](OptionTable& table) {
    table.change("heat").only_with("guests").no_effect_with("gas", "whose flame is fixed").excludes("oven");
  };
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.gas = true; }), Words());
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.heat = 2, k.guests = 1; }), Words());
  // One reason is enough for no effect.
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.heat = 2.5, k.gas = k.oven = true; }),
            Words{"--heat 2.5 has no effect without --guests N: give both, or neither"});
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.heat = 2.5, k.gas = true, k.guests = 2; }),
            Words{"--heat 2.5 has no effect with --gas, whose flame is fixed: leave one of them out"});
}

// A printed configuration has such values.
TEST(ConfigRules, AnOptionWithTheValueThatItHasWhenAbsentIsNotGiven) {
  const AddRule rule = [](OptionTable& table) {
    table.change("guests").absent("--plates").no_effect_with("gas", "whose flame is fixed");
  };
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.guests = 6, k.gas = true; }), Words());
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.guests = 5, k.gas = true; }),
            Words{"--guests 5 has no effect with --gas, whose flame is fixed: leave one of them out"});
}

TEST(ConfigRules, MayBeANote) {
  const AddRule rule = [](OptionTable& table) {
    table.change("heat").only_with("guests").as_note().no_effect_with("gas", "whose flame is fixed");
  };
  Kitchen plain, kitchen;
  kitchen.heat = 2.5;
  const auto findings = [&] {
    const OptionTable defaults = options_of(plain, rule), table = options_of(kitchen, rule);
    Problems problems(table);
    problems.check_rules(table, defaults, kEveryRule);
    return problems.findings();
  };
  EXPECT_EQ(texts_of(findings().notes), Words{"--heat 2.5 has no effect without --guests N"});
  EXPECT_TRUE(findings().errors.empty());
  EXPECT_NO_THROW(throw_problems(findings().errors));
  kitchen.guests = 2;
  kitchen.gas = true;
  EXPECT_EQ(texts_of(findings().errors),
            Words{"--heat 2.5 has no effect with --gas, whose flame is fixed: leave one of them out"});
  EXPECT_TRUE(findings().notes.empty());
}

TEST(ConfigRules, Compares) {
  const auto compares = [](const char* option, Relation relation, const char* other) {
    return [=](OptionTable& table) { table.change(option).compares(relation, other); };
  };
  EXPECT_EQ(broken(compares("pans", Relation::AtMost, "plates"), [](Kitchen& k) { k.pans = 6; }), Words());
  EXPECT_EQ(broken(compares("pans", Relation::AtMost, "plates"), [](Kitchen& k) { k.pans = 7; }),
            Words{"--pans 7 is more than --plates 6: give at most 6"});
  EXPECT_EQ(broken(compares("pans", Relation::AtLeast, "heat"), [](Kitchen&) {}),
            Words{"--pans 1 is less than --heat 1.5: give at least 1.5"});
  EXPECT_EQ(broken(compares("pans", Relation::Above, "heat"), [](Kitchen& k) { k.heat = 1; }),
            Words{"--pans 1 is not above --heat 1: give more than 1"});
  EXPECT_EQ(broken(compares("pans", Relation::Divides, "plates"), [](Kitchen& k) { k.pans = 4; }),
            Words{"--pans 4 does not divide --plates 6: give a divisor of 6"});
  EXPECT_EQ(broken(compares("plates", Relation::MultipleOf, "pans"), [](Kitchen& k) { k.pans = 4; }),
            Words{"--plates 6 is not divisible by --pans 4: 4 and 8 are"});
  // An unset number is not compared, nor one that is wrong by itself.
  EXPECT_EQ(broken(compares("pans", Relation::AtMost, "guests"), [](Kitchen& k) { k.pans = 7; }), Words());
  EXPECT_EQ(broken(compares("pans", Relation::AtMost, "plates"), [](Kitchen& k) { k.pans = 9; }).size(), 1u);
}

TEST(ConfigRules, ApplyOnlyWhereTheySay) {
  const AddRule values = [](OptionTable& table) { table.change("fuel").needs("gas").only_for("wood|oil"); };
  EXPECT_EQ(broken(values, [](Kitchen& k) { k.fuel = "coal"; }), Words());
  EXPECT_EQ(broken(values, [](Kitchen&) {}),
            Words{"--fuel wood needs --gas: give both, or neither"});  // also the default
  const AddRule provided = [](OptionTable& table) {
    table.change("guests").needs("oven").provided({"pans", AtLeast{2}}).unless("stove");
  };
  EXPECT_EQ(broken(provided, [](Kitchen& k) { k.guests = 5; }), Words());
  EXPECT_EQ(broken(provided, [](Kitchen& k) { k.guests = 5, k.pans = 2, k.stove = true; }), Words());
  EXPECT_EQ(broken(provided, [](Kitchen& k) { k.guests = 5, k.pans = 2; }),
            Words{"--guests 5 needs --oven with --pans 2: give both, or neither"});
}

TEST(ConfigRules, AreSkippedWithoutTheOtherOption) {
  const AddRule rule = [](OptionTable& table) { table.change("stove").needs("chimney").excludes("window"); };
  EXPECT_EQ(broken(rule, [](Kitchen& k) { k.stove = true; }), Words());
}

TEST(ConfigRules, OfAllCommandsNameOptionsAndValuesThatExist) {
  std::set<std::string, std::less<>> names;
  const auto each_option = [](const std::function<void(const OptionTable&, const Option&)>& body) {
    for (const CommandInfo& command : commands())
      if (command.with_table != nullptr)
        with_default_table(command.name, [&](const OptionTable& table) {
          for (const Option& option : table.options()) body(table, option);
        });
  };
  each_option([&](const OptionTable&, const Option& option) { names.insert(option.name); });
  const auto check_values = [](const Option& option, std::string_view values) {
    for (size_t begin = 0; !values.empty() && begin <= values.size();) {
      const size_t end = std::min(values.find('|', begin), values.size());
      const std::string value(values.substr(begin, end - begin));
      EXPECT_TRUE(option.allowed.empty() || std::count(option.allowed.begin(), option.allowed.end(), value))
          << option.name << value;
      begin = end + 1;
    }
  };
  each_option([&](const OptionTable& table, const Option& option) {
    for (const Rule& rule : option.rules) {
      check_values(option, rule.values);
      EXPECT_NE(rule.other.begin(), rule.other.end()) << option.name;
      if (rule.severity == Severity::Note) {
        EXPECT_TRUE(rule.kind == Rule::Kind::OnlyWith || rule.kind == Rule::Kind::NoEffectWith)
            << option.name;
        EXPECT_EQ(rule.remedy, "") << option.name;
      }
      for (const When& when : {rule.other, rule.provided, rule.unless})
        for (const When::Term& term : when) {
          EXPECT_TRUE(names.count(term.option)) << option.name << " and " << term.option;
          if (const Option* other = table.find(term.option)) check_values(*other, term.values);
        }
    }
  });
}

TEST(ConfigRules, KnowTheAsynchronousSchedules) {
  std::string found;
  for (const std::string_view name : schedule_names())
    if (is_async(*find_schedule(name))) found += (found.empty() ? "" : "|") + std::string(name);
  EXPECT_EQ(found, kAsynchronousSchedules);
}

}  // namespace
}  // namespace trifold
