# cmake --install build --prefix P: a tree that may be moved. bin/magister finds torch beside itself (P/lib/magister, with
# MAGISTER_INSTALL_TORCH=ON) or where the build found it; man page and completions are what the program prints.
#   bin/magister  lib/magister/  share/magister/{jobs,configs}/  share/man/man1/  share/bash-completion/completions/
#   share/zsh/site-functions/  share/modulefiles/magister/<version>
include(GNUInstallDirs)
option(MAGISTER_INSTALL_TORCH "Copy libtorch, the CUDA runtime and NCCL into the installed tree (1 GB) instead of naming their folders" OFF)

set_target_properties(magister PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/magister;${MAGISTER_RUN_RPATH}")
install(TARGETS magister RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(MAGISTER_INSTALL_TORCH)
  file(GLOB torch_libraries ${TORCH_ROOT}/lib/*.so ${TORCH_ROOT}/lib/*.so.*)
  file(GLOB cuda_libraries ${MAGISTER_CUDA_LIBRARY_FOLDER}/libcudart.so.* ${MAGISTER_CUDA_LIBRARY_FOLDER}/libcupti.so.* ${NCCL_LIBRARY})
  install(FILES ${torch_libraries} ${cuda_libraries} DESTINATION ${CMAKE_INSTALL_LIBDIR}/magister)
  if(MAGISTER_HAVE_ARROW)
    install(FILES ${ARROW_LIBRARY} ${PARQUET_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR}/magister)
  endif()
endif()

install(DIRECTORY jobs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/magister/jobs USE_SOURCE_PERMISSIONS)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/magister/configs)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/magister)
configure_file(scripts/cmake/modulefile.in ${CMAKE_BINARY_DIR}/generated/modulefile @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/modulefile DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles/magister RENAME ${PROJECT_VERSION})

# Printed by the program that stands in the build folder: it can run before it is installed.
install(CODE "
  set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  function(print_into path)
    get_filename_component(folder \"\${prefix}/\${path}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${folder}\")
    execute_process(COMMAND \"${CMAKE_BINARY_DIR}/magister\" \${ARGN} OUTPUT_FILE \"\${prefix}/\${path}\" COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS \"Installing: \${prefix}/\${path}\")
  endfunction()
  print_into(${CMAKE_INSTALL_DATADIR}/man/man1/magister.1 --man)
  print_into(${CMAKE_INSTALL_DATADIR}/bash-completion/completions/magister --completion bash)
  print_into(${CMAKE_INSTALL_DATADIR}/zsh/site-functions/_magister --completion zsh)
")
