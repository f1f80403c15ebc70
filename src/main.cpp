// The only file outside a room. Placeholder until app is there.
int main() { return 70; }
