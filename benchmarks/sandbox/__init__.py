"""The sandbox beside other ways to run a program: how fast it is, and how soon it ends what will not end."""
