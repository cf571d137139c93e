#include "apps/plot/figure_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace grapevine {
namespace figure_file_test {

namespace fs = std::filesystem;

constexpr char kSvg[] = "<?xml version=\"1.0\"?>\n<svg>\n<text>a ]]> b</text></svg>\n";

// Signature and header of a picture with one pixel.
std::string png() {
  using namespace std::string_literals;
  return "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\b\2\0\0\0\x90wS\xde"
         "rest"s;
}

class FigureFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "figure_file_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  fs::path folder_;
};

TEST_F(FigureFile, TheEndOfTheNameIsTheFormat) {
  EXPECT_EQ(*figure_format_of("--out", "a/b.svg"), FigureFormat::svg);
  EXPECT_EQ(*figure_format_of("--out", "b.c.PNG"), FigureFormat::png);
  for (const char* name : {"a", "a.pdf", "svg", ".svg", "a.svg/"})
    EXPECT_FALSE(figure_format_of("--out", name).ok()) << name;
}

TEST_F(FigureFile, SignedFiguresMayBeReplaced) {
  const auto svg = signed_figure(FigureFormat::svg, kSvg);
  ASSERT_TRUE(svg.ok());
  EXPECT_EQ(*svg,
            "<?xml version=\"1.0\"?>\n<!-- grapevine plot -->\n<svg>\n"
            "<text>a ]]&gt; b</text></svg>\n");
  EXPECT_TRUE(check_figure_path("--out", write("a.svg", *svg)).ok());
  const auto picture = signed_figure(FigureFormat::png, png());
  ASSERT_TRUE(picture.ok());
  // The checksum of the chunk, by another implementation (Python's zlib).
  EXPECT_EQ(picture->substr(33, 35),
            std::string("\0\0\0\x17tEXtSoftware\0grapevine plot", 31) + "\xda\xe4\xfc\x10");
  EXPECT_TRUE(check_figure_path("--out", write("a.png", *picture)).ok());
  EXPECT_TRUE(check_figure_path("--out", write("empty.svg", "")).ok());
  EXPECT_TRUE(check_figure_path("--out", folder_ / "new.svg").ok());
}

TEST_F(FigureFile, OtherFilesStay) {
  for (const std::string& bytes : {std::string(kSvg), png(), std::string("notes")}) {
    const auto checked = check_figure_path("--out", write("other.svg", bytes));
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.error().code, Errc::bad_input);
    EXPECT_NE(checked.error().message.find("no figure of grapevine"), std::string::npos);
  }
  fs::create_directories(folder_ / "folder.svg");
  EXPECT_FALSE(check_figure_path("--out", folder_ / "folder.svg").ok());
  ASSERT_EQ(::mkfifo((folder_ / "pipe.svg").c_str(), 0600), 0);
  EXPECT_FALSE(check_figure_path("--out", folder_ / "pipe.svg").ok());
  const auto missing = check_figure_path("--out", folder_ / "none" / "a.svg");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Errc::bad_input);
}

TEST_F(FigureFile, PartsOfFiguresAreErrors) {
  EXPECT_FALSE(signed_figure(FigureFormat::svg, "").ok());
  EXPECT_FALSE(signed_figure(FigureFormat::svg, "<?xml version=\"1.0\"?>\n<svg>\n").ok());
  EXPECT_FALSE(signed_figure(FigureFormat::svg, "<?xml").ok());
  EXPECT_FALSE(signed_figure(FigureFormat::png, png().substr(0, 33)).ok());
  EXPECT_FALSE(signed_figure(FigureFormat::png, kSvg).ok());
}

}  // namespace figure_file_test
}  // namespace grapevine
