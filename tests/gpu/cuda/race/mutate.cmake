# cmake -D NAME=… -D SOURCE=<root> -D OUT=<folder> -P mutate.cmake: writes the mutant's copies of the
# shipped files into OUT/gpu/cuda, and OUT/mutant.cpp, which compiles them in a namespace of their own
# and registers them with the tests. Fails where the text to be replaced is not there, or not once.
cmake_minimum_required(VERSION 3.22)
set(cuda ${SOURCE}/gpu/cuda)
foreach(file top_k.cu block.cuh)
  file(READ ${cuda}/${file} text_of_${file})
endforeach()

function(mutant name kernel file text replacement)
  if(NOT name STREQUAL NAME)
    return()
  endif()
  set(content "${text_of_${file}}")
  string(FIND "${content}" "${text}" first)
  string(FIND "${content}" "${text}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "mutant ${name}: gpu/cuda/${file} must contain exactly once what the mutant replaces; "
                        "adapt tests/gpu/cuda/race/mutants.cmake to the file:\n${text}")
  endif()
  string(REPLACE "${text}" "${replacement}" content "${content}")
  set(text_of_${file} "${content}" PARENT_SCOPE)
  set(kernel_of_mutant "${kernel}" PARENT_SCOPE)
endfunction()
include(${CMAKE_CURRENT_LIST_DIR}/mutants.cmake)
if(NOT DEFINED kernel_of_mutant)
  message(FATAL_ERROR "there is no mutant ${NAME}")
endif()

foreach(file top_k.cu block.cuh)
  file(WRITE ${OUT}/gpu/cuda/${file} "${text_of_${file}}")
endforeach()
file(WRITE ${OUT}/mutant.cpp "// Made by tests/gpu/cuda/race/mutate.cmake.
#define grapevine grapevine_${NAME}
#include \"gpu/cuda/top_k.cu\"
#undef grapevine
#include \"tests/gpu/cuda/race/mutant.hpp\"
namespace {
[[maybe_unused]] const bool kRegistered = racecheck::add_mutant(
    {\"${NAME}\", \"${kernel_of_mutant}\", 
     [](std::int64_t d, std::int64_t k) {
       return grapevine_${NAME}::cuda::top_k_workspace_bytes(d, k).value();
     },
     [](std::uint32_t* indices, float* values, std::uint32_t* count, float* x, std::int64_t d,
        std::int64_t k, void* workspace) {
       namespace cuda = grapevine_${NAME}::cuda;
       return cuda::top_k(indices, values, count, x, true, d, k, cuda::Candidates::guessed, workspace,
                          nullptr).ok();
     }});
}  // namespace
")
