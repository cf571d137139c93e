// Files for the tests of the data sets: temporary folders, gzip, JPEG and PNG made on the spot.
#pragma once
#include <cstddef>
#include <cstdio>

#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gpu/data/data_set.hpp"

namespace grapevine {

using TestBytes = std::vector<std::uint8_t>;

// A fresh folder that goes with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = testing::TempDir() + "grapevine-data-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  // Makes the folders on the way to the file.
  std::string file(const std::string& name) const {
    const std::filesystem::path whole = path_ / name;
    std::filesystem::create_directories(whole.parent_path());
    return whole.string();
  }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::string& path, const TestBytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

inline TestBytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_gzip(const std::string& path, const TestBytes& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

// Interleaved pixels; `components` 1 (grey), 3 (RGB) or 4 (CMYK as ink, no Adobe marker).
inline void write_jpeg(const std::string& path, int width, int height, int components,
                       const TestBytes& pixels, int quality = 95) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  std::FILE* file = std::fopen(path.c_str(), "wb");
  jpeg_stdio_dest(&info, file);
  info.image_width = static_cast<unsigned>(width);
  info.image_height = static_cast<unsigned>(height);
  info.input_components = components;
  info.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  if (components == 4) info.write_Adobe_marker = FALSE;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPLE*>(pixels.data()) +
                std::size_t{info.next_scanline} * info.image_width * components;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::fclose(file);
}

// `format` PNG_FORMAT_GRAY, PNG_FORMAT_RGB, PNG_FORMAT_RGBA, or PNG_FORMAT_RGB_COLORMAP with a
// palette of RGB triples.
inline void write_png(const std::string& path, int width, int height, std::uint32_t format,
                      const TestBytes& pixels, const TestBytes& palette = {}) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<unsigned>(width);
  image.height = static_cast<unsigned>(height);
  image.format = format;
  image.colormap_entries = static_cast<unsigned>(palette.size() / 3);
  ASSERT_NE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0,
                                    palette.empty() ? nullptr : palette.data()),
            0)
      << image.message;
}

// `components` values for each pixel, all pixels alike.
inline TestBytes uniform_pixels(int width, int height, const TestBytes& pixel) {
  TestBytes pixels;
  for (int i = 0; i < width * height; ++i) pixels.insert(pixels.end(), pixel.begin(), pixel.end());
  return pixels;
}

inline std::vector<std::int64_t> index_range(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> indices(count);
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

inline bool same_batches(const Batch& a, const Batch& b) {
  return a.input.equal(b.input) && a.target.equal(b.target);
}

// What every data set promises: shapes and types, the order of the indices, batches that depend on
// nothing but the arguments, and a check on the indices. REQUIRES: four training images.
inline void expect_keeps_the_contract(const DataSet& data, std::uint64_t augment_seed) {
  const DataInfo& info = data.info();
  std::vector<std::int64_t> shape{3};
  shape.insert(shape.end(), info.sample_shape.begin(), info.sample_shape.end());
  const Batch batch = *data.batch(Split::train, {2, 0, 3}, augment_seed);
  EXPECT_EQ(batch.input.sizes().vec(), shape);
  EXPECT_EQ(batch.input.scalar_type(), at::kFloat);
  EXPECT_TRUE(batch.input.isfinite().all().item<bool>());
  if (info.task == Task::classification) {
    EXPECT_EQ(batch.target.sizes().vec(), std::vector<std::int64_t>{3});
    EXPECT_EQ(batch.target.scalar_type(), at::kLong);
  } else {
    EXPECT_EQ(batch.target.sizes().vec(), (std::vector<std::int64_t>{3, info.classes}));
    EXPECT_EQ(batch.target.scalar_type(), at::kFloat);
  }
  EXPECT_TRUE(same_batches(batch, *data.batch(Split::train, {2, 0, 3}, augment_seed)));
  const std::vector<std::int64_t> order{2, 0, 3};
  for (std::int64_t i = 0; i < 3; ++i) {
    const Batch alone = *data.batch(Split::train, {order[i]}, augment_seed);
    EXPECT_TRUE(alone.input[0].equal(batch.input[i])) << "sample " << order[i];
    EXPECT_TRUE(alone.target[0].equal(batch.target[i])) << "sample " << order[i];
  }
  EXPECT_EQ(data.batch(Split::test, {}, 0)->input.size(0), 0);
  EXPECT_THROW((void)data.batch(Split::train, {-1}, 0), InvariantBroken);
  EXPECT_THROW((void)data.batch(Split::train, {info.train_size}, 0), InvariantBroken);
  EXPECT_THROW((void)data.batch(Split::test, {0, info.test_size}, 0), InvariantBroken);
}

// Several threads at once read what one thread reads alone.
inline void expect_threads_agree(const DataSet& data, std::uint64_t augment_seed) {
  const auto indices = index_range(0, std::min<std::int64_t>(16, data.info().train_size));
  const Batch alone = *data.batch(Split::train, indices, augment_seed);
  std::atomic<int> different{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round)
        if (!same_batches(alone, *data.batch(Split::train, indices, augment_seed))) ++different;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

// The whole line; it must be one.
inline void expect_error(const Error& error, const std::vector<std::string>& parts) {
  EXPECT_EQ(error.code, Errc::bad_input);
  EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  for (const std::string& part : parts)
    EXPECT_NE(error.message.find(part), std::string::npos)
        << "'" << part << "' in: " << error.message;
}

}  // namespace grapevine
