# grapevine::torch: LibTorch with its headers as system headers. For the build of Grapevine and, in its
# package, for that of programs that use it.
if(TARGET grapevine::torch)
  return()
endif()
# The configuration of a LibTorch with CUDA enables the CUDA language, adds flags for GPUs that it
# guesses (some of which the installed nvcc may no longer know) to every CUDA object of the caller,
# and unsets the architectures. Ours are chosen in GrapevineCuda.cmake.
set(GRAPEVINE_OWN_CUDA_FLAGS "${CMAKE_CUDA_FLAGS}")
set(GRAPEVINE_OWN_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
find_package(Torch REQUIRED)
set(CMAKE_CUDA_FLAGS "${GRAPEVINE_OWN_CUDA_FLAGS}")
if(GRAPEVINE_OWN_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "${GRAPEVINE_OWN_CUDA_ARCHITECTURES}")
else()
  unset(CMAKE_CUDA_ARCHITECTURES)
  unset(CMAKE_CUDA_ARCHITECTURES CACHE)  # the compiler's default, as the language was enabled
endif()
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)

# LibTorch's own target leaks its headers as -I (dozens of warnings) and its preferred flags; this
# wraps them as system headers. TORCH_LIBRARIES is not used: TorchConfig looks for c10 and c10_cuda
# in the system's folders first, and so mixes two releases where the distribution's is installed too.
add_library(grapevine::torch INTERFACE IMPORTED)
# A LibTorch from a wheel brings the headers of fmt and protobuf that it was built with. What we build
# must continue to find those of the libraries that it links, so they go first, alone in a folder.
list(GET TORCH_INCLUDE_DIRS 0 GRAPEVINE_TORCH_INCLUDE)
function(grapevine_put_first headers include)
  if(NOT EXISTS ${GRAPEVINE_TORCH_INCLUDE}/${headers} OR include STREQUAL GRAPEVINE_TORCH_INCLUDE)
    return()
  endif()
  set(first ${CMAKE_BINARY_DIR}/first)
  get_filename_component(parent ${first}/${headers} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${include}/${headers} ${first}/${headers} SYMBOLIC)
  target_include_directories(grapevine::torch SYSTEM BEFORE INTERFACE ${first})
endfunction()
if(TARGET fmt::fmt)
  get_target_property(GRAPEVINE_FMT_INCLUDE fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  list(GET GRAPEVINE_FMT_INCLUDE 0 GRAPEVINE_FMT_INCLUDE)
  grapevine_put_first(fmt ${GRAPEVINE_FMT_INCLUDE})
endif()
list(GET Protobuf_INCLUDE_DIRS 0 GRAPEVINE_PROTOBUF_INCLUDE)
grapevine_put_first(google/protobuf ${GRAPEVINE_PROTOBUF_INCLUDE})
target_include_directories(grapevine::torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(grapevine::torch INTERFACE torch torch_library c10 Threads::Threads)
separate_arguments(GRAPEVINE_TORCH_FLAGS UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(grapevine::torch INTERFACE ${GRAPEVINE_TORCH_FLAGS})
