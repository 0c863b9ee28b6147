from kamebench.cli import main

main()
