import argparse

from hccl_like import sdk

parser = argparse.ArgumentParser(prog="python -m hccl_like.sdk", description="Says where the vendor's files of hccl-like are.")
what = parser.add_mutually_exclusive_group(required=True)
what.add_argument("--include-dir", action="store_const", const=sdk.include_dir, dest="where", help="the headers")
what.add_argument("--cmake-dir", action="store_const", const=sdk.cmake_dir, dest="where", help="the CMake package hccl_like")
print(parser.parse_args().where())
