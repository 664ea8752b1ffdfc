from sim.run import main

main()
