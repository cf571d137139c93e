#include <gtest/gtest.h>

#include <algorithm>

#include "apps/zoo/data.hpp"
#include "apps/zoo/data/parallel.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_registry_test {

Error error_of(const std::string& spec) {
  auto made = make_data_set(spec, {});
  EXPECT_FALSE(made.ok()) << spec;
  return made.ok() ? Error{} : made.error();
}

TEST(DataRegistry, NamesAreSortedAndKnown) {
  const std::vector<std::string> names = data_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names) {
    auto made = make_data_set(name, {});
    if (made.ok()) {
      EXPECT_EQ((*made)->info().name, name);
    } else {
      EXPECT_EQ(made.error().message.find("unknown"), std::string::npos) << name;
    }
  }
}

TEST(DataRegistry, AnUnknownNameGetsAGuess) {
  expect_error(error_of("gliphs"), {"unknown data set 'gliphs'", "did you mean 'glyphs'?"});
  expect_error(error_of(""), {"unknown data set ''", "mnist"});
  expect_error(error_of("Mnist:/tmp"), {"did you mean 'mnist'?"});
}

TEST(DataRegistry, AMissingFolderIsExplained) {
  for (const char* spec : {"mnist", "mnist:", "cifar10", "images"}) {
    SCOPED_TRACE(spec);
    const std::string name = std::string(spec).substr(0, std::string(spec).find(':'));
    expect_error(error_of(spec), {name + " needs a folder: " + name + ":DIR with "});
  }
  expect_error(error_of("mnist:/no/such/folder"), {"/no/such/folder", "train-images-idx3-ubyte"});
  expect_error(error_of("cifar10:/no/such/folder"), {"/no/such/folder", "test_batch.bin"});
  expect_error(error_of("images:/no/such/folder"), {"/no/such/folder"});
}

TEST(DataRegistry, NumbersInThePathAreChecked) {
  for (const char* spec : {"glyphs:9", "glyphs:many", "glyphs:-20", "glyphs:1000001", "glyphs:20x"})
    expect_error(error_of(spec), {std::string(spec) + ": expected a number from 10 to 1000000"});
  for (const char* spec :
       {"hyperplane:0", "hyperplane:1.5", "hyperplane: 3", "hyperplane:99999999999999999999"})
    expect_error(error_of(spec), {std::string(spec) + ": expected a number from 1 to 16777216"});
}

TEST(DataRegistry, NumbersOfSequencesAreChecked) {
  for (const char* spec : {"sequences:5", "sequences:1000001", "sequences:x"})
    expect_error(error_of(spec), {std::string(spec) + ": expected a number from 6 to 1000000"});
  EXPECT_EQ((*make_data_set("sequences:6", {}))->info().test_size, 6);
}

TEST(ParallelFor, DoesEachPieceOnceAndRethrows) {
  for (const int threads : {1, 2, 7}) {
    SCOPED_TRACE(threads);
    std::vector<std::atomic<int>> visits(100);
    parallel_for(threads, 100, [&](std::int64_t i) { ++visits[i]; });
    for (const auto& visit : visits) EXPECT_EQ(visit, 1);
    parallel_for(threads, 0, [](std::int64_t) { FAIL(); });
    EXPECT_THROW(parallel_for(threads, 20,
                              [](std::int64_t i) {
                                if (i == 11) throw std::runtime_error("piece 11");
                              }),
                 std::runtime_error);
  }
}

}  // namespace data_registry_test
}  // namespace grapevine
